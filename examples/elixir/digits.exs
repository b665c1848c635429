# Trains a network on images of the size of MNIST's: 12,000 synthetic digits of 28 x 28 pixels, moved,
# dimmed and noisy. Prints progress, and the accuracy on 2,000 others.
#
#     cd bindings/elixir && mix run ../../examples/elixir/digits.exs
alias CowMLX.{Array, Op, Program, Training}

defmodule Digits do
  @side 28

  # Seven segments of each digit, as on a pocket calculator: x, y, width, height.
  @segments [
    {6, 3, 12, 3},
    {6, 12, 12, 3},
    {6, 21, 12, 3},
    {4, 4, 3, 10},
    {17, 4, 3, 10},
    {4, 13, 3, 10},
    {17, 13, 3, 10}
  ]
  @digits [0b1111101, 0b1010000, 0b0110111, 0b1010111, 0b1011010] ++
            [0b1001111, 0b1101111, 0b1010001, 0b1111111, 0b1011111]

  def make(count) do
    shapes = Enum.map(@digits, &pixels/1)
    labels = for _ <- 1..count, do: :rand.uniform(10) - 1
    images = for label <- labels, into: <<>>, do: image(Enum.at(shapes, label))

    %{
      images: Array.from_binary!(images, :uint8, [count, @side * @side]),
      labels: Array.new!(labels, dtype: :int32)
    }
  end

  defp pixels(digit) do
    order = [0, 3, 1, 5, 2, 4, 6] |> Enum.with_index()
    lit = for {at, bit} <- order, Bitwise.band(Bitwise.bsr(digit, bit), 1) == 1, do: Enum.at(@segments, at)
    for {x, y, w, h} <- lit, i <- x..(x + w - 1), j <- y..(y + h - 1), uniq: true, do: {i, j}
  end

  defp image(pixels) do
    {right, down, light} = {:rand.uniform(9) - 5, :rand.uniform(7) - 4, 120 + :rand.uniform(135)}

    lit =
      for {x, y} <- pixels, x + right in 0..27, y + down in 0..27, into: MapSet.new() do
        (y + down) * @side + x + right
      end

    noise = :crypto.strong_rand_bytes(@side * @side)

    for {<<byte>>, at} <- Enum.with_index(for <<b <- noise>>, do: <<b>>), into: <<>> do
      <<if(at in lit, do: light - div(byte, 4), else: div(byte, 4))>>
    end
  end
end

CowMLX.start!()
:rand.seed(:exsss, {1, 2, 3})
data = Digits.make(12_000)
other = Digits.make(2_000)

images = Program.input("images", :uint8, ["rows", 784])
labels = Program.input("labels", :int32, ["rows"])
weight = &Program.parameter(&1, :float32, &2, init: %{name: "glorot_uniform"})
bias = &Program.parameter(&1, :float32, &2, init: "zeros")

x = Op.divide(Op.astype(images, dtype: :float32), 255)
hidden = Op.relu(Op.add(Op.matmul(x, weight.("w1", [784, 128])), bias.("b1", [128])))
logits = Op.add(Op.matmul(hidden, weight.("w2", [128, 10])), bias.("b2", [10]))
guess = Op.astype(Op.argmax(logits, axis: -1), dtype: :int32)
correct = Op.sum(Op.astype(Op.equal(guess, labels), dtype: :int32))
loss = Op.mean(Op.cross_entropy(logits, labels))
program = Program.build!(loss: loss, correct: correct)

{:ok, %{training: training}} =
  Training.fit(program, data,
    epochs: 5,
    batch_size: 128,
    event_every: 10,
    optimizer: :adam,
    schedule: %{name: "cosine_decay", init: 0.003, decay_steps: 470},
    clip: 1.0,
    validation: other
  )

{:ok, %{accuracy: accuracy}} = Training.evaluate(training, other)
IO.puts("accuracy #{Float.round(100 * accuracy, 1)} %")
