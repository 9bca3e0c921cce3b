"""Results as cards: building blocks of plain values, drawn as text for terminals and as HTML for notebooks."""
