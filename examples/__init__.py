"""Programs that show Postroad at work: `scripts/demo` runs them."""
