defmodule CowMLX.PageTest do
  @moduledoc "The code of docs/getting-started/elixir.md."
  use ExUnit.Case, async: false

  import ExUnit.CaptureIO

  test "the page's code runs, and prints what the page says" do
    folder = System.fetch_env!("COWMLX_TEST_MODEL")

    # The page names the model as the root of the tree does.
    File.cd!(Path.join(folder, "../.."), fn ->
      assert capture_io(&page/0) =~ "3 + 4 = 7."
    end)
  end

  defp page do
    CowMLX.start!()
    model = CowMLX.Model.load!("models/calf")
    context = CowMLX.Context.create!(model)
    answer = CowMLX.Chat.answer!(context, [%{role: "user", content: "What is 3 + 4?"}])
    IO.puts(answer.text)

    for piece <- CowMLX.Context.generate(context, "Once upon a time", max_tokens: 20, seed: 7) do
      IO.write(piece.text)
    end

    {ref, _pid} = CowMLX.Chat.stream_async(context, [%{role: "user", content: "What is 2 + 2?"}])

    receive do
      {^ref, {:event, %{kind: :text, text: text}}} -> IO.write(text)
    end

    odd_tokens_never_follow = fn _tokens, logits ->
      vocabulary = div(byte_size(logits), 4)
      Map.new(1..(vocabulary - 1)//2, &{&1, :neg_infinity})
    end

    {:ok, result} =
      CowMLX.Context.complete(CowMLX.Context.create!(model), "Once upon a time",
        max_tokens: 5,
        on_logits: odd_tokens_never_follow
      )

    :length = result.finish

    other = CowMLX.Context.create!(model)
    {:error, error} = CowMLX.Context.complete(other, "Hello", top_p: 1.5)
    :out_of_range = error.reason
    "above 0 and at most 1" = error.details.accepted

    alias CowMLX.{Array, Op, Program}

    x = Program.input("x", :float32, ["rows", 2])
    y = Program.input("y", :float32, ["rows"])
    w = Program.parameter("w", :float32, [2], init: "zeros")
    program = Program.build!(loss: Op.mean(Op.square(Op.subtract(Op.matmul(x, w), y))))

    gradient = Program.gradient!(program, :loss, [:w])
    slopes = Program.run!(gradient, x: [[1, 0], [0, 1]], y: [3, -2], w: [0, 0])
    [-3.0, 2.0] = Array.to_list!(slopes.w)

    data = %{x: [[1, 0], [0, 1], [1, 1]], y: [3, -2, 1]}

    options = [epochs: 200, optimizer: {:adam, learning_rate: 0.1}, callbacks: []]
    {:ok, fitted} = CowMLX.Training.fit(program, data, options)
    [first, _second] = Array.to_list!(CowMLX.Training.parameter!(fitted.training, :w))
    true = abs(first - 3) < 0.1
  end
end
