"""What lakedex costs beside its peers: ``./dev bench`` runs them all on one machine in one go."""

__all__: list[str] = []
