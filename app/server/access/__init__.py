"""Who may ask: keys, tokens, permissions, rates, and what is written down of it."""
