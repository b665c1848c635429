#include <cow_mlx.hpp>
#include <iostream>

int main() {
  /* BLOCK */
}
