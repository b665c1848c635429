"""Arrays of hosts: their types, and how their memory becomes mlx's."""
