defmodule CowMLX.ServingTest do
  use CowMLX.Case, async: true
  doctest CowMLX.Serving

  alias CowMLX.Serving

  test "callers share contexts, and wait for one" do
    server = start_supervised!({Serving, model: model(), contexts: 2})

    answers =
      1..6
      |> Task.async_stream(fn _ -> Serving.answer(server, question()) end,
        max_concurrency: 6,
        timeout: 60_000
      )
      |> Enum.map(fn {:ok, {:ok, answer}} -> answer.text end)

    assert answers == List.duplicate("3 + 4 = 7.", 6)
    assert Enum.map_join(Serving.stream(server, question()), & &1.text) == "3 + 4 = 7."
    assert [_] = Enum.take(Serving.stream(server, question()), 1)
    assert {:ok, %{finish: :length}} = Serving.complete(server, "Once", max_tokens: 2)
  end

  test "a caller that is killed gives its context back" do
    server = start_supervised!({Serving, model: model(), contexts: 1})

    in_process(fn ->
      for _ <- Serving.stream(server, question()), do: Process.exit(self(), :kill)
    end)

    assert {:ok, %{text: "3 + 4 = 7."}} = Serving.answer(server, question())
  end

  test "rows of several callers are one run" do
    x = Program.input("x", :float32, ["rows", 2])
    program = Program.build!(sum: Op.sum(x, axis: 1), rows: Op.sum(Op.ones_like(x), axis: 1))
    server = start_supervised!({Serving, program: program, batch_size: 4, batch_timeout: 50})

    sums =
      1..4
      |> Task.async_stream(fn n -> Serving.run(server, x: [[n, 1]]) end,
        max_concurrency: 4,
        timeout: 20_000
      )
      |> Enum.map(fn {:ok, {:ok, results}} -> results.sum end)

    assert sums == [[2.0], [3.0], [4.0], [5.0]]
    assert {:ok, %{sum: [3.0, 7.0]}} = Serving.run(server, x: [[1, 2], [3, 4]])
    assert {:error, %Error{}} = Serving.run(server, x: [[1, 2, 3]])
    assert {:error, %Error{}} = Serving.run(server, y: [[1, 2]])
    assert {:error, %Error{}} = Serving.answer(server, question())
  end

  test "results that are not rows are refused" do
    x = Program.input("x", :float32, ["rows", 2])
    program = Program.build!(rows: Op.sum(x, axis: 1), loss: Op.mean(x))
    server = start_supervised!({Serving, program: program, batch_size: 2, batch_timeout: 50})

    for {:ok, result} <-
          Task.async_stream([[[1, 1]], [[2, 2], [3, 3]]], &Serving.run(server, x: &1)) do
      assert {:error, %Error{reason: :shape_mismatch, details: %{argument: "loss"}}} = result
    end
  end

  test "rows of other dtypes and shapes are other runs" do
    x = Program.input("x", :float32, ["rows", "height", "width"])
    program = Program.build!(same: Op.add(x, 0))
    server = start_supervised!({Serving, program: program, batch_size: 2, batch_timeout: 200})
    wide = [[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]]
    high = [[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]]
    whole = Array.new!([[[7, 7, 7], [7, 7, 7]]], dtype: :int32)

    run = fn rows -> Task.async_stream(rows, &Serving.run(server, x: &1)) end

    assert [ok: {:ok, %{same: ^wide}}, ok: {:ok, %{same: ^high}}] =
             Enum.to_list(run.([wide, high]))

    assert [ok: {:ok, %{same: ^wide}}, ok: {:error, _}] = Enum.to_list(run.([wide, whole]))
  end

  test "inputs that are unusable are an error of their caller alone" do
    x = Program.input("x", :float32, ["rows", 2])
    program = Program.build!(sum: Op.sum(x, axis: 1))
    server = start_supervised!({Serving, program: program, batch_size: 9, batch_timeout: 200})
    waiting = Task.async(fn -> Serving.run(server, x: [[1, 2]]) end)
    freed = Array.new!([[1.0, 2.0]])
    Array.free(freed)

    for x <- [freed, {<<>>, :float32, 5}, {<<>>, :float32, [1, 2]}, {<<>>, :float32, [1 | 2]}] do
      assert {:error, %Error{}} = Serving.run(server, x: x)
    end

    assert {:ok, %{sum: [3.0]}} = Task.await(waiting)
  end

  test "a batch that raises is an error of its callers" do
    batches = Serving.Batches.new(program: nil, batch_size: 1)
    tag = make_ref()
    Serving.Batches.add(batches, {[], 1}, {self(), tag})
    assert_receive {^tag, {:error, %Error{reason: :internal}}}, 5_000
  end

  test "a serving needs a model or a program, and options that fit" do
    Process.flag(:trap_exit, true)
    assert {:error, %Error{}} = Serving.start_link([])

    for options <-
          [[contexts: 0], [contexts: :x], [model: 1], [program: 1], [batch_size: 0]] ++
            [[batch_timeout: -1], [batch_timeout: 0.5], [slots: 4]] do
      [{name, value}] = options
      assert {:error, %Error{details: details}} = Serving.start_link(options ++ [model: model()])
      assert {details.argument, details.value} == {to_string(name), inspect(value)}
    end
  end
end
