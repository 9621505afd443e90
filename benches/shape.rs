//! The shapes of graphs of runs that are measured here and with pg-boss.

const LAYERS: usize = 20;

/// How the runs wait for each other.
#[derive(Clone, Copy)]
pub enum Shape {
    None,
    OneParent,
    OneChild,
    Layers,
    Chain,
}

impl Shape {
    pub const ALL: [Self; 4] = [Self::OneParent, Self::OneChild, Self::Layers, Self::Chain];

    /// Returns what the run at this place of `runs` waits for.
    pub fn after(self, place: usize, runs: usize) -> Vec<usize> {
        let layer = runs / LAYERS;
        match self {
            Self::None => Vec::new(),
            Self::OneParent => (place > 0).then_some(0).into_iter().collect(),
            Self::OneChild if place + 1 == runs => (0..place).collect(),
            Self::OneChild => Vec::new(),
            Self::Layers if place < layer => Vec::new(),
            Self::Layers => {
                let first = (place / layer - 1) * layer;
                (0..3).map(|n| first + (place + n) % layer).collect()
            }
            Self::Chain => place.checked_sub(1).into_iter().collect(),
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::None => "no run waits",
            Self::OneParent => "all others wait for one",
            Self::OneChild => "one waits for all others",
            Self::Layers => "twenty layers, each run waits for three",
            Self::Chain => "one chain",
        }
    }
}
