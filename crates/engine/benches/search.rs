//! The search against stateright: the same systems, the same numbers of states and steps, in turns.
//!
//! `cargo bench -p fathom-engine --bench search`; see [`support`] for how it is measured.

mod support;

use support::{Summary, compare, measured_as_child};

fn main() {
    if measured_as_child() {
        return;
    }
    let Summary { vs_stateright_1t, vs_stateright_2t, bytes_per_state, stateright_bytes_per_state } =
        compare();
    println!(
        "{{\"vs_stateright_1t\":{vs_stateright_1t:.2},\"vs_stateright_2t\":{vs_stateright_2t:.2},\
         \"bytes_per_state\":{bytes_per_state:.1},\
         \"stateright_bytes_per_state\":{stateright_bytes_per_state:.1}}}"
    );
}
