"""What builds, generates, guards and installs the library; none of it is part of it."""
