//! Coverage of system calls, as text, as a page, side by side, and for other programs.

mod chart;
pub mod diff;
pub mod export;
pub mod html;
pub mod text;
