/* The link-type design for SPIN: one process, whose choices are the actions of the design. The
 * tables are in C (link.h): up to 2 threads and 4 files. SPIN takes f(x) for a side effect, (f)(x)
 * not. */

c_decl {
\#include "link.h"
}

c_state "Volume s" "Global"

#define BEGIN(t, op, file) :: d_step { c_expr { (can_begin)(&now.s, t, op, file) } -> c_code { begin(&now.s, t, op, file); } }
#define FILE_CHOICES(t, op) BEGIN(t, op, 0) BEGIN(t, op, 1) BEGIN(t, op, 2) BEGIN(t, op, 3)
#define THREAD_CHOICES(t) FILE_CHOICES(t, 1) FILE_CHOICES(t, 2) FILE_CHOICES(t, 3) \
	:: d_step { c_expr { (can_go_on)(&now.s, t) } -> c_code { go_on(&now.s, t); } }

active proctype design()
{
	c_code { make(&now.s); };
	do
	THREAD_CHOICES(0)
	THREAD_CHOICES(1)
	:: d_step { c_expr { !(now.s.faults & 12) } -> c_code { crash(&now.s); } }
	od
}
