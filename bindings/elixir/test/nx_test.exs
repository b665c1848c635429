# Only where Nx is in the code path.
if Code.ensure_loaded?(Nx) do
  defmodule CowMLX.NxTest do
    use ExUnit.Case, async: false

    import Nx.Defn

    setup_all do
      {:ok, _} = Application.ensure_all_started(:nx)
      :ok
    end

    setup do
      before = Nx.default_backend(CowMLX.Backend)
      on_exit(fn -> Nx.default_backend(before) end)
    end

    @jit [compiler: CowMLX.Compiler, on_unsupported: :raise]

    defn(loss(w, x, y), do: Nx.mean((Nx.tanh(Nx.dot(x, w)) - y) ** 2))
    defn(slope(w, x, y), do: value_and_grad(w, &loss(&1, x, y)))

    defn factorial(n) do
      {_, result} =
        while {i = n, result = 1}, Nx.greater(i, 1) do
          {i - 1, result * i}
        end

      result
    end

    defn choose(x) do
      cond do
        Nx.greater(Nx.sum(x), 10) -> x * 2
        Nx.greater(Nx.sum(x), 5) -> x + 1
        true -> -x
      end
    end

    defn(seen(x), do: print_value(x + 1, label: "x"))

    test "the defaults of the page" do
      Nx.default_backend(CowMLX.Backend)
      Nx.Defn.default_options(compiler: CowMLX.Compiler)
      assert Nx.to_number(factorial(5)) == 120
    end

    test "tensors are arrays, and operations are applied to them" do
      t = Nx.tensor([[1.0, 2.0], [3.0, 4.0]])
      assert %CowMLX.Backend{array: %CowMLX.Array{dtype: :float32}} = t.data
      assert Nx.to_list(Nx.dot(t, t)) == [[7.0, 10.0], [15.0, 22.0]]
      assert inspect(t) =~ "[1.0, 2.0]"
      assert Nx.to_list(Nx.gather(t, Nx.tensor([[1, 1], [0, 1]]))) == [4.0, 2.0]
      assert Nx.backend_transfer(t, Nx.BinaryBackend).data.__struct__ == Nx.BinaryBackend
    end

    test "what the library lacks is computed by Nx" do
      t = Nx.tensor([1, 2, 3])
      assert Nx.to_number(Nx.reduce(t, 0, fn a, b -> Nx.add(a, b) end)) == 6
      assert Nx.to_list(Nx.population_count(t)) == [1, 1, 2]
    end

    test "an expression is one program, and its gradient is that of central differences" do
      {w, x} =
        {Nx.tensor([0.5, -0.2], type: :f64), Nx.tensor([[1.0, 2.0], [3.0, 1.0]], type: :f64)}

      y = Nx.tensor([0.1, 0.2], type: :f64)
      {value, slope} = Nx.Defn.jit(&slope/3, @jit).(w, x, y)
      at = fn w -> Nx.to_number(Nx.Defn.jit(&loss/3, @jit).(w, x, y)) end
      assert_in_delta Nx.to_number(value), at.(w), 1.0e-12

      for i <- 0..1 do
        step =
          Nx.indexed_put(
            Nx.tensor([0.0, 0.0], type: :f64),
            Nx.tensor([[i]]),
            Nx.tensor([1.0e-5], type: :f64)
          )

        central = (at.(Nx.add(w, step)) - at.(Nx.subtract(w, step))) / 2.0e-5
        assert_in_delta Nx.to_number(slope[i]), central, 1.0e-8
      end
    end

    test "while and cond are part of the program" do
      assert Nx.to_number(Nx.Defn.jit(&factorial/1, @jit).(10)) == 3_628_800

      for {given, result} <- [{[1, 1], [-1, -1]}, {[3, 4], [4, 5]}, {[30, 4], [60, 8]}] do
        assert Nx.to_list(Nx.Defn.jit(&choose/1, @jit).(Nx.tensor(given))) == result
      end
    end

    test "a program is compiled once for the shapes of its arguments" do
      before = CowMLX.Runtime.info!()["handles"]["program"]
      jit = Nx.Defn.jit(&choose/1, @jit)
      for n <- 1..20, do: jit.(Nx.tensor([n, n, n]))
      :erlang.garbage_collect()
      assert CowMLX.Runtime.info!()["handles"]["program"] <= before + 3
    end

    defmodule Turned do
      @derive {Nx.Container, containers: [:x], keep: [:by]}
      defstruct [:x, :by]
    end

    test "other containers and kept fields are other programs" do
      nested =
        Nx.Defn.jit(
          fn
            %{a: {x, y}, b: z} -> Nx.subtract(Nx.add(x, y), z)
            %{a: x, b: {y, z}} -> Nx.add(x, Nx.multiply(y, z))
          end,
          @jit
        )

      assert Nx.to_number(nested.(%{a: {1, 2}, b: 3})) == 0
      assert Nx.to_number(nested.(%{a: 1, b: {2, 3}})) == 7

      turn =
        Nx.Defn.jit(
          fn
            %Turned{x: x, by: :sign} -> Nx.negate(x)
            %Turned{x: x, by: :order} -> Nx.reverse(x)
          end,
          @jit
        )

      x = Nx.tensor([1, 2])
      assert Nx.to_list(turn.(%Turned{x: x, by: :sign})) == [-1, -2]
      assert Nx.to_list(turn.(%Turned{x: x, by: :order})) == [2, 1]
    end

    test "floats become the nearest u64" do
      for convert <- [&Nx.as_type(&1, :u64), Nx.Defn.jit(&Nx.as_type(&1, :u64), @jit)],
          {type, rounded} <- [f32: 9_999_999_980_506_447_872, f64: 10_000_000_000_000_000_000] do
        given = Nx.tensor([1.0e19, :infinity, 1.0e20, :neg_infinity, -1, :nan, 3.7], type: type)
        most = 18_446_744_073_709_551_615
        assert Nx.to_list(convert.(given)) == [rounded, most, most, 0, 0, 0, 3]
      end
    end

    test "orders are stable in both directions" do
      many = for n <- 0..9_999, do: rem(n * 7, 3)

      for direction <- [:asc, :desc],
          order = &Nx.argsort(&1, axis: 0, direction: direction, stable: true),
          argsort <- [order, Nx.Defn.jit(order, @jit)],
          numbers <- [[1, 1, 0], many, [:neg_infinity, 1.5, :nan, 1.5, :infinity, -1.5]] do
        given = Nx.tensor(numbers)

        expected =
          Nx.argsort(Nx.backend_copy(given, Nx.BinaryBackend), direction: direction, stable: true)

        assert Nx.to_list(argsort.(given)) == Nx.to_list(expected)
      end

      rows = Nx.tensor([[1, 2], [1, 1], [0, 2]])
      assert Nx.to_list(Nx.argsort(rows, axis: 0, direction: :desc)) == [[0, 0], [1, 2], [2, 1]]
      assert Nx.to_list(Nx.argsort(rows, axis: 1, direction: :desc)) == [[1, 0], [0, 1], [1, 0]]
      assert Nx.to_list(Nx.sort(rows, axis: 0, direction: :desc)) == [[1, 2], [1, 2], [0, 1]]
    end

    test "erfc keeps its digits where erf is 1" do
      for erfc <- [&Nx.erfc/1, Nx.Defn.jit(&Nx.erfc/1, compiler: CowMLX.Compiler)] do
        assert_in_delta Nx.to_number(erfc.(Nx.tensor(4.0))), 1.541725790e-8, 1.0e-14
      end
    end

    test "hooks are evaluated, or refused" do
      printed =
        ExUnit.CaptureIO.capture_io(fn -> Nx.Defn.jit(&seen/1, compiler: CowMLX.Compiler).(1) end)

      assert printed =~ "x"
      assert_raise ArgumentError, ~r/no program/, fn -> Nx.Defn.jit(&seen/1, @jit).(1) end
    end
  end
end
