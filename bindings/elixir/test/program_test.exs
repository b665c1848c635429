defmodule CowMLX.ProgramTest do
  use CowMLX.Case, async: true
  doctest CowMLX.Control
  doctest CowMLX.Program

  defp line do
    x = Program.input("x", :float32, ["rows", 3])
    w = Program.parameter("w", :float32, [3])
    y = Op.matmul(x, w)
    Program.build!(y: y, loss: Op.mean(y))
  end

  test "a program runs by names and in order" do
    program = line()
    results = Program.run!(program, x: [[1, 2, 3], [4, 5, 6]], w: [1, 0, -1])
    assert Array.to_list!(results.y) == [-2.0, -2.0]
    assert Array.to_list!(results.loss) == -2.0
    assert {:ok, [y, _]} = Program.run_all(program, [[[1, 1, 1]], Array.new!([1.0, 2.0, 3.0])])
    assert Array.to_list!(y) == [6.0]
  end

  test "a gradient is exact, and agrees with central differences" do
    x = Program.input(:x, :float64, [3])
    loss = Op.sum(Op.multiply(Op.sin(x), Op.exp(Op.multiply(x, 0.5))))
    program = Program.build!(loss: loss)
    gradient = Program.gradient!(program, :loss, [:x], value: true)
    at = [0.3, -1.2, 2.0]
    %{loss: _, x: slope} = Program.run!(gradient, x: at)
    value = fn x -> Array.to_list!(Program.run!(program, x: x).loss) end

    for {exact, i} <- Enum.with_index(Array.to_list!(slope)) do
      moved = fn by -> List.update_at(at, i, &(&1 + by)) end
      central = (value.(moved.(1.0e-5)) - value.(moved.(-1.0e-5))) / 2.0e-5
      assert_in_delta exact, central, 1.0e-8
    end
  end

  test "while, cond and scan use values around them" do
    a = Program.input("a", :float32, [])
    limit = Program.input("limit", :float32, [])

    [root, rounds] =
      Control.while(
        [a, Program.constant(0)],
        fn [x, _] -> Op.greater(Op.abs(Op.subtract(Op.multiply(x, x), a)), limit) end,
        fn [x, n] -> [Op.divide(Op.add(x, Op.divide(a, x)), 2), Op.add(n, 1)] end,
        max_iterations: 100
      )

    [size] =
      Control.cond(Op.greater(root, 2.5), fn [] -> Op.add(root, a) end, fn [] ->
        Op.subtract(root, a)
      end)

    {[total], [sums]} =
      Control.scan([a], [Program.input("xs", :float32, ["n"])], fn [sum], [x] ->
        next = Op.add(Op.multiply(sum, limit), x)
        {[next], [next]}
      end)

    program = Program.build!(root: root, rounds: rounds, size: size, total: total, sums: sums)
    results = Program.run!(program, a: 9.0, limit: 1.0e-3, xs: [1, 2])
    assert_in_delta Array.to_list!(results.root), 3.0, 1.0e-3
    assert Array.to_list!(results.rounds) == 4
    assert_in_delta Array.to_list!(results.size), 12.0, 1.0e-2
    assert [first, _] = Array.to_list!(results.sums)
    assert_in_delta first, 1.009, 1.0e-5
    assert is_float(Array.to_list!(results.total))
  end

  test "bodies compute with dimensions of the program's inputs" do
    x = Program.input("x", :float32, ["n"])

    [y] =
      Control.while(
        [Op.concatenate([x, x])],
        fn [s] -> Op.greater(Op.sum(s), 2.5) end,
        fn [s] ->
          half = fn [] -> Op.multiply(Op.softmax(s), 2) end
          Control.cond(Op.greater(Op.sum(s), 3), half, fn [] -> s end)
        end,
        max_iterations: 3
      )

    assert Array.to_list!(Program.run!(Program.build!(y: y), x: [1, 1]).y) == [0.5, 0.5, 0.5, 0.5]
  end

  test "programs are vectorized and bound" do
    x = Program.input("x", :float32, [2])
    program = Program.build!(y: Op.sum(Op.multiply(x, x)))
    {:ok, rows} = Program.vectorize(program, x: 0)
    assert Array.to_list!(Program.run!(rows, x: [[1, 2], [3, 4]]).y) == [5.0, 25.0]
    {:ok, bound} = Program.bind(program, x: Array.new!([3.0, 4.0]))
    assert Array.to_list!(Program.run!(bound, []).y) == 25.0
  end

  test "runs are submitted, polled and waited for" do
    program = line()
    assert {:ok, %{y: y}} = Program.run(program, [x: [[1, 2, 3]], w: [1, 1, 1]], submit: true)
    assert :ok = Array.wait(y, 10_000)
    assert Array.to_list!(y) == [6.0]
  end

  test "an output that is an input, and one value with two names" do
    x = Program.input("x", :float32, [])
    y = Op.add(x, 1)
    results = Program.run!(Program.build!(same: x, y: y, z: y), x: 1)
    assert for(key <- [:same, :y, :z], do: Array.to_list!(results[key])) == [1.0, 2.0, 2.0]
  end

  test "faults of a program name the node" do
    x = Program.input("x", :float32, [2, 3])

    assert {:error, %Error{op: :program_create, details: details}} =
             Program.build(y: Op.sum(x, axis: 2))

    assert details.op == "sum" and details.node == "y"
    assert {:error, %Error{}} = Program.build([])
    assert {:error, %Error{}} = Program.build(y: 1)
  end

  test "inputs that are missing, unknown or unusable are refused by name" do
    program = line()

    assert {:error, %Error{reason: :missing, details: %{argument: "w"}}} =
             Program.run(program, x: [[1, 2, 3]])

    assert {:error, %Error{reason: :unknown_option}} = Program.run(program, x: [], w: [], z: 1)

    assert {:error, %Error{details: %{argument: "w"}}} =
             Program.run(program, x: [[1, 2, 3]], w: [1, :a, 2])

    assert {:error, %Error{status: :einval}} = Program.run(program, x: [[1, 2, 3]], w: [1, 2])
    assert {:error, %Error{}} = Program.run(program, :nothing)
  end

  test "more than 100 operations are functions" do
    {:ok, table} = Runtime.operations()
    names = for %{"name" => name, "family" => family} <- table, family != "control flow", do: name

    functions =
      Op.__info__(:functions)
      |> Keyword.keys()
      |> Enum.map(&String.trim_trailing(to_string(&1), "_"))
      |> MapSet.new()

    assert length(names) > 100
    assert Enum.reject(names, &(&1 in functions)) == []
  end
end
