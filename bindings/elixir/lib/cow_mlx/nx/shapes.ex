if Code.ensure_loaded?(Nx) do
  defmodule CowMLX.Nx.Shapes do
    @moduledoc false
    # Operations of Nx on shapes, places and axes.

    import CowMLX.Nx.Types, only: [cast: 2, nonzero: 1, unsupported: 1, dtype: 1]
    alias CowMLX.Op
    alias CowMLX.Nx.Types

    @operations ~w(as_type bitcast reshape squeeze broadcast transpose reverse pad concatenate)a ++
                  ~w(stack select clip slice put_slice gather indexed_add indexed_put)a

    @doc "The operations."
    def operations, do: @operations

    @doc "The result of an operation."
    def lower(:as_type, out, [a]), do: cast(a, out.type)
    def lower(:bitcast, out, [%{shape: []} = a]), do: view(Op.reshape(a.x, shape: [1]), out)
    def lower(:bitcast, out, [a]), do: view(a.x, out)

    def lower(op, out, [a | _]) when op in [:reshape, :squeeze],
      do: Op.reshape(a.x, shape: shape(out))

    def lower(:broadcast, out, [a, _shape, axes]) do
      sizes = Map.new(Enum.zip(axes, a.shape))
      places = for axis <- axes_of(out), do: Map.get(sizes, axis, 1)
      a.x |> Op.reshape(shape: places) |> Op.broadcast_to(shape: shape(out))
    end

    def lower(:transpose, _out, [a, axes]), do: transposed(a.x, axes)
    def lower(:reverse, _out, [a, []]), do: a.x
    def lower(:reverse, _out, [a, axes]), do: Op.flip(a.x, axis: axes)

    def lower(:pad, out, [a, value, config]) do
      if Enum.any?(config, fn {low, high, inner} -> low < 0 or high < 0 or inner != 0 end),
        do: unsupported("pad with negative or interior padding")

      {x, value} = {cast(a, out.type), cast(value, out.type)}
      width = for {low, high, _} <- config, do: [low, high]

      if config == [] do
        x
      else
        inside = Op.pad(Op.broadcast_to(true_like(x), shape: a.shape), pad_width: width)
        Op.where(inside, Op.pad(x, pad_width: width), value)
      end
    end

    def lower(:concatenate, out, [list, axis]),
      do: Op.concatenate(Enum.map(list, &cast(&1, out.type)), axis: axis)

    def lower(:stack, out, [list, axis]),
      do: Op.stack(Enum.map(list, &cast(&1, out.type)), axis: axis)

    def lower(:select, out, [predicate, yes, no]) do
      chosen = Op.where(nonzero(predicate), cast(yes, out.type), cast(no, out.type))
      Op.broadcast_to(chosen, shape: shape(out))
    end

    def lower(:clip, out, [a, low, high]) do
      bounded = Op.maximum(cast(a, out.type), cast(low, out.type))
      Op.minimum(bounded, cast(high, out.type))
    end

    def lower(:slice, out, [a, starts, lengths, strides]) do
      axes = axes_of(out)

      if Enum.all?(starts, &is_integer/1) do
        starts = clamped(starts, lengths, a.shape)
        stops = Enum.zip_with(starts, lengths, &(&1 + &2))
        sliced(a.x, starts, stops, strides)
      else
        window =
          Op.dynamic_slice(a.x, places(starts), slice_size: lengths, axes: axes, indices: :clamp)

        sliced(window, Enum.map(axes, fn _ -> 0 end), lengths, strides)
      end
    end

    def lower(:put_slice, out, [a, starts, update]) do
      update_x = cast(update, out.type)

      if starts == [],
        do: update_x,
        else:
          Op.slice_update(cast(a, out.type), update_x, places(starts, update.shape, a.shape),
            axes: axes_of(out),
            indices: :clamp
          )
    end

    def lower(:gather, out, [a, indices, options]) do
      {x, rest, _back} = front(a, options[:axes])
      places = linear(indices, Enum.map(options[:axes], &Enum.at(a.shape, &1)))
      count = indices.shape |> Enum.drop(-1)

      x
      |> Op.take(places, axis: 0)
      |> Op.reshape(shape: count ++ rest)
      |> Op.reshape(shape: shape(out))
    end

    def lower(op, out, [a, indices, updates, options]) when op in [:indexed_add, :indexed_put] do
      {x, rest, back} = front(%{a | x: cast(a, out.type)}, options[:axes])
      places = linear(indices, Enum.map(options[:axes], &Enum.at(a.shape, &1)))

      values =
        Op.reshape(cast(updates, out.type), shape: [size(Enum.drop(indices.shape, -1)) | rest])

      name = if op == :indexed_add, do: :scatter_add, else: :scatter
      back.(apply(Op, name, [x, places, values, [axis: 0]]))
    end

    @doc "The shape of a tensor as a list."
    def shape(tensor), do: Tuple.to_list(tensor.shape)

    @doc "The axes of a tensor."
    def axes_of(tensor), do: Enum.to_list(0..(tuple_size(tensor.shape) - 1)//1)

    @doc "Axes in another order."
    def transposed(x, axes), do: if(axes == [], do: x, else: Op.transpose(x, axes: axes))

    @doc "A slice from starts to stops."
    def sliced(x, [], [], _strides), do: x

    def sliced(x, starts, stops, strides) do
      axes = Enum.to_list(0..(length(starts) - 1))
      Op.slice(x, start: starts, stop: stops, strides: strides, axes: axes)
    end

    @doc "The product of sizes."
    def size(shape), do: Enum.product(shape)

    defp view(x, out),
      do: x |> Op.view(dtype: dtype(out.type)) |> Op.reshape(shape: shape(out))

    defp true_like(x), do: Op.equal(Op.zeros_like(x), 0)

    defp clamped(starts, lengths, shape) do
      Enum.zip_with([starts, lengths, shape], fn [start, length, size] ->
        start |> max(0) |> min(size - length)
      end)
    end

    # The starts of a window, numbers and scalars, as an array.
    defp places(starts), do: starts |> Enum.map(&place/1) |> Op.stack(axis: 0)

    defp places(starts, lengths, shape) do
      limits = Enum.zip_with(shape, lengths, &(&1 - &2))

      starts
      |> Enum.zip_with(limits, fn
        start, limit when is_integer(start) -> start |> max(0) |> min(limit)
        start, _limit -> start
      end)
      |> places()
    end

    defp place(%Types{} = scalar), do: Op.reshape(cast(scalar, {:s, 32}), shape: [])
    defp place(number), do: CowMLX.Nx.Making.scalar(number, :int32)

    # The axes of indices come first, as one; and the way back.
    defp front(a, axes) do
      others = Enum.to_list(0..(length(a.shape) - 1)//1) -- axes
      order = axes ++ others
      rest = Enum.map(others, &Enum.at(a.shape, &1))
      total = size(Enum.map(axes, &Enum.at(a.shape, &1)))
      x = a.x |> transposed(order) |> Op.reshape(shape: [total | rest])

      back = fn y ->
        moved = Enum.map(order, &Enum.at(a.shape, &1))
        inverse = for axis <- 0..(length(order) - 1)//1, do: Enum.find_index(order, &(&1 == axis))
        y |> Op.reshape(shape: moved) |> transposed(inverse)
      end

      {x, rest, back}
    end

    # Rows of indices as places in the flattened axes. One that is out of range stays so.
    defp linear(indices, sizes) do
      count = length(sizes)

      rows =
        Op.reshape(cast(indices, {:s, 32}), shape: [size(Enum.drop(indices.shape, -1)), count])

      strides =
        sizes
        |> Enum.reverse()
        |> Enum.scan(1, &(&1 * &2))
        |> then(&[1 | &1])
        |> Enum.take(count)
        |> Enum.reverse()

      0..(count - 1)//1
      |> Enum.map(fn at ->
        column =
          rows |> sliced([0, at], [2_147_483_647, at + 1], [1, 1]) |> Op.reshape(shape: [-1])

        size = Enum.at(sizes, at)
        bad = Op.logical_or(Op.less(column, 0), Op.greater_equal(column, size))
        Op.where(bad, 250_000_000, Op.multiply(column, Enum.at(strides, at)))
      end)
      |> Enum.reduce(&Op.add(&1, &2))
    end
  end
end
