//! The view: plan (pure), link, relocate, entry points, activation.
