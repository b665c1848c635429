[
  inputs: ["*.exs", "lib/*.ex", "lib/cow_mlx/*.ex", "lib/cow_mlx/nx/*.ex", "test/**/*.{ex,exs}"],
  line_length: 98
]
