"""What ``./dev`` runs."""
