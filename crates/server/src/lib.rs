//! The ratekeeper service. Skeleton.
