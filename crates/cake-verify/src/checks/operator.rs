//! The operators, by the names that kernels and the command line have for them.

use cake_core::Op;

/// An operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[allow(missing_docs)]
pub enum Operator {
    Rmsnorm,
    SiluGate,
}

impl Operator {
    /// All of them.
    pub const ALL: [Operator; 2] = [Operator::Rmsnorm, Operator::SiluGate];

    /// As kernels spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Operator::Rmsnorm => cake_kernels::rmsnorm::OP,
            Operator::SiluGate => cake_kernels::silu_gate::OP,
        }
    }

    /// The operator of a pass.
    pub fn of<O: Op>() -> Operator {
        let found = Operator::ALL.into_iter().find(|operator| O::NAME.starts_with(operator.name()));
        found.expect("the name of a pass begins with its operator's")
    }
}
