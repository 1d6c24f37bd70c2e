//! The one source of chance in a world.

/// xoshiro256** seeded by splitmix64: the same numbers on every machine, for ever.
#[derive(Debug, Clone)]
pub struct Rng([u64; 4]);

impl Rng {
    /// Starts the sequence of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        Self(std::array::from_fn(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        }))
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.0;
        let out = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= t;
        *d = d.rotate_left(45);
        out
    }

    /// A number from `low` to `high`, both included.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.draw() % (high - low + 1)
    }

    /// An index below `len`, which is not 0.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.draw() % len as u64).unwrap_or(0)
    }

    /// One of `items`, which is not empty.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.index(items.len())]
    }

    /// `true` in so many of a thousand draws.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.draw() % 1_000 < per_mille
    }
}
