//! The seccomp filter: stops at the calls of the table, at no others.

use libc::sock_filter;

use crate::layout::{calls, index_of};

const LOAD_NUMBER: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_GREATER_OR_EQUAL: u16 = 0x35;
const JUMP: u16 = 0x05;
const RETURN: u16 = 0x06;

/// A filter program for the present architecture. io_uring is refused as the sysctl
/// `kernel.io_uring_disabled` refuses it: its operations would be invisible.
pub(super) fn program() -> Vec<sock_filter> {
    let setup = index_of("io_uring_setup").map(|index| calls()[usize::from(index)].nr);
    let mut numbers: Vec<u32> = calls().iter().map(|call| call.nr).collect();
    numbers.retain(|nr| Some(*nr) != setup);
    let mut program = vec![op(LOAD_NUMBER, 0, 0, 0)];
    if let Some(setup) = setup {
        let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
        program.extend([op(JUMP_IF_EQUAL, 0, 1, setup), op(RETURN, 0, 0, refused)]);
    }
    search(&mut program, &numbers);
    program
}

/// Adds a binary search of the numbers: the filter runs at every call of the program.
fn search(program: &mut Vec<sock_filter>, numbers: &[u32]) {
    if numbers.len() <= 4 {
        for (index, nr) in numbers.iter().enumerate() {
            program.push(op(JUMP_IF_EQUAL, (numbers.len() - index) as u8, 0, *nr));
        }
        program.push(op(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW));
        program.push(op(RETURN, 0, 0, libc::SECCOMP_RET_TRACE));
        return;
    }
    let (low, high) = numbers.split_at(numbers.len() / 2);
    let mut below = Vec::new();
    search(&mut below, low);
    // Conditional jumps reach 255 instructions only.
    program.push(op(JUMP_IF_GREATER_OR_EQUAL, 0, 1, high[0]));
    program.push(op(JUMP, 0, 0, below.len() as u32));
    program.extend(below);
    search(program, high);
}

fn op(code: u16, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a filter program as the kernel would.
    fn run(program: &[sock_filter], nr: u32) -> u32 {
        let mut at = 0;
        loop {
            let op = &program[at];
            at += 1;
            match op.code {
                LOAD_NUMBER => {}
                JUMP => at += op.k as usize,
                JUMP_IF_EQUAL => at += usize::from(if nr == op.k { op.jt } else { op.jf }),
                JUMP_IF_GREATER_OR_EQUAL => {
                    at += usize::from(if nr >= op.k { op.jt } else { op.jf });
                }
                RETURN => return op.k,
                other => panic!("no such instruction: {other:#x}"),
            }
        }
    }

    #[test]
    fn only_the_calls_of_the_table_stop() {
        let program = program();
        for nr in 0..600 {
            let known = calls().iter().find(|call| call.nr == nr);
            let expected = match known.map(|call| call.name) {
                Some("io_uring_setup") => libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
                Some(_) => libc::SECCOMP_RET_TRACE,
                None => libc::SECCOMP_RET_ALLOW,
            };
            assert_eq!(run(&program, nr), expected, "{nr}");
        }
    }
}
