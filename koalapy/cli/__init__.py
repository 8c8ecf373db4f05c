"""The commands `koala`, a thin client of koalad, and `koalad` itself."""
