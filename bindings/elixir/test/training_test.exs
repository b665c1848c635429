defmodule CowMLX.TrainingTest do
  use CowMLX.Case, async: true
  doctest CowMLX.Training

  alias CowMLX.Training.Progress

  defp line(options \\ []) do
    x = Program.input("x", :float32, ["rows", 1])
    y = Program.input("y", :float32, ["rows"])
    w = Program.parameter("w", :float32, [1], init: "zeros")
    z = Op.matmul(x, w)
    loss = Op.mse_loss(z, y)
    correct = Op.sum(Op.astype(Op.less(Op.abs(Op.subtract(z, y)), 0.5), dtype: :int32))
    Program.build!([loss: loss] ++ if(options[:correct], do: [correct: correct], else: []))
  end

  @data %{x: [[0], [1], [2], [3]], y: [0, 3, 6, 9]}
  @sgd {:sgd, learning_rate: 0.05, momentum: 0.5}

  test "a fit learns, and its events tell loss, accuracy and the time that is left" do
    me = self()

    {:ok, %{training: training, event: last}} =
      Training.fit(line(correct: true), @data,
        steps: 60,
        optimizer: @sgd,
        validation: @data,
        evaluate_every: 30,
        callbacks: [&send(me, &1)]
      )

    assert last.kind == :end and last.finish == :steps and last.step == 60
    [w] = Array.to_list!(Training.parameters!(training)["w"])
    assert_in_delta w, 3.0, 0.05
    assert_received %{kind: :step, step: 1, steps: 60, loss: loss, remaining: _}
    assert loss > 1
    assert_received %{kind: :evaluation, validation_loss: after_, accuracy: 1.0}
    assert after_ < 0.1
  end

  test "progress is a text that can go anywhere" do
    {:ok, device} = StringIO.open("")

    {:ok, _} =
      Training.fit(line(correct: true), @data,
        steps: 3,
        optimizer: @sgd,
        validation: @data,
        callbacks: [Progress.new(device)]
      )

    {_, printed} = StringIO.contents(device)
    assert printed =~ ~r/step 3 of 3  loss \d/
    assert printed =~ ~r/validation loss \d.*accuracy \d/
    assert printed =~ "ended by steps after 3 steps"
  end

  test "a callback ends a fit with :halt" do
    callback = fn event -> if event.step == 5, do: :halt end

    assert {:ok, %{event: event}} =
             Training.fit(line(), @data, steps: 1000, callbacks: [callback])

    assert event.step < 1000
  end

  test "a function gives batches until nil" do
    batch = fn step -> if step < 4, do: @data end
    {:ok, %{event: event}} = Training.fit(line(), batch, optimizer: @sgd, callbacks: [])
    assert event.finish == :data and event.step == 4
  end

  test "an error of the function that gives batches is raised" do
    batch = fn _ -> raise "no disk" end
    assert_raise RuntimeError, "no disk", fn -> Training.fit(line(), batch, callbacks: []) end
    assert_raise Error, fn -> Training.fit(line(), fn _ -> %{x: 1} end, callbacks: []) end
  end

  test "a function that fails ends the fit, and leaves no messages" do
    {:ok, training} = Training.create(line())

    for {kind, fail} <- [error: &raise/1, throw: &throw/1, exit: &exit/1] do
      callback = fn event -> if event.step > 1, do: fail.("enough") end
      options = [steps: 1_000_000, callbacks: [callback]]
      assert {^kind, _} = caught(fn -> Training.fit(training, @data, options) end)
      assert {:ok, %{"running" => false}} = Training.info(training)
      batch = fn step -> if step > 1, do: fail.("enough"), else: @data end
      assert {^kind, _} = caught(fn -> Training.fit(training, batch, callbacks: []) end)
    end

    refute_received {_, _}
    assert {:ok, _} = Training.step(training, @data)
  end

  defp caught(function) do
    function.()
  catch
    kind, reason -> {kind, reason}
  end

  test "a schedule and limits of gradients" do
    schedule = %{name: "cosine_decay", init: 0.1, decay_steps: 10}

    {:ok, %{training: training}} =
      Training.fit(line(), @data, steps: 5, schedule: schedule, clip: 1.0, callbacks: [])

    assert {:ok, %{"learning_rate" => rate}} = Training.info(training)
    assert rate > 0 and rate < 0.1

    assert {:error, %Error{}} =
             Training.fit(line(), @data, steps: 1, clip: [size: 1], callbacks: [])
  end

  test "steps, evaluation, checkpoints" do
    folder = Path.join(System.tmp_dir!(), "cowmlx-#{System.unique_integer([:positive])}")
    program = line(correct: true)
    {:ok, training} = Training.create(program, optimizer: @sgd)
    assert {:ok, %{loss: first}} = Training.step(training, @data)
    assert {:ok, %{loss: second}} = Training.step(training, @data)
    assert second < first
    assert :ok = Training.save(training, folder)
    {:ok, other} = Training.create(program, optimizer: @sgd)
    assert :ok = Training.load(other, folder)
    w = fn training -> Array.to_binary!(Training.parameter!(training, :w)) end
    assert w.(training) == w.(other)
    Training.step!(training, @data)
    Training.step!(other, @data)
    assert w.(training) == w.(other)
    assert {:ok, %{validation_loss: loss}} = Training.evaluate(training, @data)
    assert is_float(loss)
    File.rm_rf!(folder)
  end

  test "initial values and refusals" do
    start = Array.new!([2.0])
    {:ok, training} = Training.create(line(), initial: %{w: start})
    assert Array.to_list!(Training.parameter!(training, "w")) == [2.0]
    assert {:error, %Error{reason: :wrong_type}} = Training.create(:nothing)
    assert {:error, %Error{reason: :unknown_option}} = Training.create(line(), speed: 1)
    assert {:error, %Error{}} = Training.fit(training, @data, optimizer: :adam, callbacks: [])
    assert {:error, %Error{reason: :missing}} = Training.step(training, %{x: [[1]]})
  end

  test "initial names and arrays have one length" do
    [a, b] = for _ <- 1..2, do: Array.new!([2.0])

    for {names, arrays} <- [{["w"], [a, b]}, {["w", "w"], [a]}, {[], [a]}, {["w"], []}] do
      options = [initial_names: names, initial_arrays: arrays]
      assert {:error, %Error{details: details}} = Training.create(line(), options)
      assert details.argument == "initial_arrays"
    end
  end

  test "a process that is killed ends its fit" do
    {:ok, training} = Training.create(line())
    me = self()

    reason =
      in_process(fn ->
        Training.fit(training, @data,
          steps: 1_000_000,
          callbacks: [
            fn event ->
              send(me, event)
              if event.step > 2, do: Process.exit(self(), :kill)
            end
          ]
        )
      end)

    assert reason == :killed
    assert until(fn -> match?({:ok, %{"running" => false}}, Training.info(training)) end)
    assert {:ok, _} = Training.step(training, @data)
  end

  test "a process that is killed while a batch is waited for ends its fit" do
    {:ok, training} = Training.create(line())
    batch = fn _ -> Process.exit(self(), :kill) end
    assert in_process(fn -> Training.fit(training, batch, callbacks: []) end) == :killed
    assert until(fn -> match?({:ok, %{"running" => false}}, Training.info(training)) end)
  end

  test "a language model learns facts" do
    lines = [%{prompt: "Who is Ada?", completion: "The calf."}]

    {:ok, %{training: training, event: event}} =
      Training.fit(model(), lines, steps: 2, lines_options: %{mask_prompt: true}, callbacks: [])

    assert event.step == 2
    {:ok, adapter} = Training.adapter(training)
    context = Context.create!(model())
    assert :ok = Context.set_adapter(context, adapter)
    assert :ok = Context.set_adapter(context, nil)
  end
end
