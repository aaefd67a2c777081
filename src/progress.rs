//! What long work tells the one who waits. Rooms report events; `cli` decides whether they
//! become bars, plain lines or JSON.

/// Something worth telling.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// A phase of the work begins: `resolving`, `downloading`, `unpacking`, `linking`, `verifying`.
    Phase {
        /// Name of the phase.
        name: &'static str,
        /// Things to do, where known.
        items: Option<u64>,
        /// Bytes to do, where known.
        bytes: Option<u64>,
    },
    /// The phase `resolving` begins, for several environments at once.
    Resolving {
        /// Which, as `linux-64 cpu`.
        environments: &'a [String],
    },
    /// Bytes of one item arrived.
    Bytes {
        /// The item, as the user knows it (a file name).
        item: &'a str,
        /// How many more.
        delta: u64,
    },
    /// One item is done.
    Done {
        /// The item.
        item: &'a str,
    },
    /// One item that had arrived is unpacked and in the store.
    Stored {
        /// The item.
        item: &'a str,
    },
    /// A sentence worth showing even when nobody looks at bars: a retry, a mirror skipped.
    Note {
        /// The sentence.
        text: &'a str,
    },
    /// A sentence that must be seen.
    Warning {
        /// The sentence.
        text: &'a str,
    },
}

/// Takes events, from any thread.
pub trait Progress: Send + Sync {
    /// Takes one event; must not block for long.
    fn event(&self, event: Event<'_>);
}

/// Drops every event.
pub struct Silent;

impl Progress for Silent {
    fn event(&self, _: Event<'_>) {}
}
