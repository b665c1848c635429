if Code.ensure_loaded?(Nx) do
  defmodule CowMLX.Nx.Reductions do
    @moduledoc false
    # Operations of Nx along axes: sums, windows, products of matrices, orders, convolutions.

    import CowMLX.Nx.Types, only: [cast: 2, truth: 1, nonzero: 1, unsupported: 1, dtype: 1]
    import CowMLX.Nx.Shapes, only: [shape: 1, sliced: 4, transposed: 2, size: 1]
    alias CowMLX.Op
    alias CowMLX.Nx.Making

    @reduce [sum: :sum, product: :prod, reduce_max: :max, reduce_min: :min]
    @windows [
      window_sum: :add,
      window_product: :multiply,
      window_max: :maximum,
      window_min: :minimum
    ]
    @operations Keyword.keys(@reduce) ++
                  Keyword.keys(@windows) ++
                  [:all, :any, :argmax, :argmin, :sort, :argsort, :dot, :conv, :fft, :ifft]

    @doc "The operations."
    def operations, do: @operations

    @doc "The result of an operation."
    def lower(op, %{type: {:c, _}}, _)
        when op in [:reduce_max, :reduce_min, :window_max, :window_min, :sort, :product],
        do: unsupported("#{op} of complex numbers")

    for {op, name} <- @reduce do
      def lower(unquote(op), out, [a, options]) do
        if options[:axes] == [],
          do: cast(a, out.type),
          else: Op.unquote(name)(cast(a, out.type), reduced(options)) |> exact(out)
      end
    end

    def lower(op, _out, [a, options]) when op in [:all, :any] do
      if options[:axes] == [],
        do: truth(nonzero(a)),
        else: truth(apply(Op, op, [nonzero(a), reduced(options)]))
    end

    def lower(op, out, [a, options]) when op in [:argmax, :argmin] do
      axis = options[:axis]
      x = if axis, do: a.x, else: Op.reshape(a.x, shape: [-1])
      along = axis || 0
      size = if axis, do: Enum.at(a.shape, axis), else: size(a.shape)
      high = options[:tie_break] == :high
      given = if high, do: Op.flip(x, axis: [along]), else: x
      place = first(op, given, along, a.type)
      found = Op.astype(place, dtype: dtype(out.type))
      found = if high, do: Op.subtract(size - 1, found), else: found
      Op.reshape(found, shape: shape(out))
    end

    def lower(:sort, _out, [a, options]),
      do: a.x |> directed(options) |> Op.sort(axis: options[:axis]) |> directed(options)

    # The input is reversed, too, so that equal elements keep their order.
    def lower(:argsort, out, [a, options]) do
      order = a.x |> directed(options) |> Op.argsort(axis: options[:axis]) |> directed(options)
      last = Enum.at(a.shape, options[:axis]) - 1
      order = if options[:direction] == :desc, do: Op.subtract(last, order), else: order
      Op.astype(order, dtype: dtype(out.type))
    end

    def lower(:dot, out, [a, axes_a, batch_a, b, axes_b, batch_b]) do
      {a, b} = {%{a | x: cast(a, out.type)}, %{b | x: cast(b, out.type)}}

      if match?({kind, _} when kind in [:f, :bf], out.type),
        do: dot(a, axes_a, batch_a, b, axes_b, batch_b),
        else: products(a, axes_a, batch_a, b, axes_b, batch_b, out)
    end

    def lower(:conv, out, [a, kernel, options]), do: conv(out, a, kernel, options)

    def lower(op, out, [a, options]) when op in [:fft, :ifft] do
      axis = options[:axis] || -1
      given = if match?({:c, _}, a.type), do: a.x, else: cast(a, {:f, 32})
      Op.astype(apply(Op, op, [given, [n: options[:length], axis: axis]]), dtype: dtype(out.type))
    end

    for {op, name} <- @windows do
      def lower(unquote(op), out, [a, window, options]) do
        windows(
          cast(a, out.type),
          a.shape,
          Tuple.to_list(window),
          options,
          out,
          unquote(op),
          unquote(name)
        )
      end
    end

    # The first nan is both the largest and the smallest.
    defp first(op, x, axis, {kind, _}) when kind in [:f, :bf] do
      nan = Op.isnan(x)
      place = Op.argmax(Op.astype(nan, dtype: :uint8), axis: axis)
      Op.where(Op.any(nan, axis: axis), place, apply(Op, op, [x, [axis: axis]]))
    end

    defp first(op, x, axis, _type), do: apply(Op, op, [x, [axis: axis]])

    defp exact(x, out), do: Op.astype(x, dtype: dtype(out.type))

    defp reduced(options) do
      axes = if options[:axes], do: [axis: options[:axes]], else: []
      [{:keepdims, options[:keep_axes] || false} | axes]
    end

    defp directed(x, options),
      do: if(options[:direction] == :desc, do: Op.flip(x, axis: [options[:axis]]), else: x)

    # ------------------------------------------------------------------------------ Matrices

    defp dot(a, axes_a, batch_a, b, axes_b, batch_b) do
      letters = Enum.map(?a..?z, &<<&1>>)
      {in_a, rest} = Enum.split(letters, length(a.shape))

      shared =
        Map.new(Enum.zip(batch_b ++ axes_b, Enum.map(batch_a ++ axes_a, &Enum.at(in_a, &1))))

      in_b =
        for {_, axis} <- Enum.with_index(b.shape), do: shared[axis] || Enum.at(rest, axis)

      batch = Enum.map(batch_a, &Enum.at(in_a, &1))
      free_a = free(in_a, batch_a ++ axes_a)
      free_b = free(in_b, batch_b ++ axes_b)
      text = "#{Enum.join(in_a)},#{Enum.join(in_b)}->#{Enum.join(batch ++ free_a ++ free_b)}"
      Op.einsum([a.x, b.x], subscripts: text)
    end

    defp free(list, axes), do: for({each, at} <- Enum.with_index(list), at not in axes, do: each)

    # Integers and complex numbers: products, and their sum.
    defp products(a, axes_a, batch_a, b, axes_b, batch_b, out) do
      {x, batch, rows, inner} = flat(a, batch_a, axes_a)
      {y, _, columns, _} = flat(b, batch_b, axes_b)
      x = Op.reshape(x, shape: [batch, rows, 1, inner])
      y = Op.reshape(y, shape: [batch, 1, columns, inner])
      sum = Op.sum(Op.multiply(x, y), axis: 3)
      sum |> Op.astype(dtype: dtype(out.type)) |> Op.reshape(shape: shape(out))
    end

    defp flat(a, batch, axes) do
      all = Enum.to_list(0..(length(a.shape) - 1)//1)
      free = all -- (batch ++ axes)
      sizes = fn axes -> size(Enum.map(axes, &Enum.at(a.shape, &1))) end
      shape = [sizes.(batch), sizes.(free), sizes.(axes)]

      {Op.reshape(transposed(a.x, batch ++ free ++ axes), shape: shape), sizes.(batch),
       sizes.(free), sizes.(axes)}
    end

    # ------------------------------------------------------------------------------- Windows

    defp windows(x, sizes, window, options, out, op, name) do
      padding = options[:padding]
      strides = options[:strides]
      dilations = options[:window_dilations] || Enum.map(window, fn _ -> 1 end)
      if size(window) > 4096, do: unsupported("#{op} of #{size(window)} places")
      x = padded(x, sizes, padding, out, op)
      results = shape(out)

      for place <- places(window) do
        starts = Enum.zip_with(place, dilations, &(&1 * &2))

        stops =
          Enum.zip_with([starts, results, strides], fn [s, n, by] -> s + (n - 1) * by + 1 end)

        sliced(x, starts, stops, strides)
      end
      |> Enum.reduce(fn each, all -> apply(Op, name, [all, each]) end)
    end

    defp places([]), do: [[]]

    defp places([size | rest]),
      do: for(at <- 0..(size - 1), tail <- places(rest), do: [at | tail])

    defp padded(x, sizes, padding, out, op) do
      if Enum.all?(padding, &(&1 == {0, 0})) do
        x
      else
        if Enum.any?(padding, fn {low, high} -> low < 0 or high < 0 end),
          do: unsupported("#{op} with negative padding")

        width = Enum.map(padding, &Tuple.to_list/1)
        ones = Op.broadcast_to(Op.equal(Op.zeros_like(x), 0), shape: sizes)

        Op.where(
          Op.pad(ones, pad_width: width),
          Op.pad(x, pad_width: width),
          neutral(op, out.type)
        )
      end
    end

    defp neutral(:window_sum, type), do: Making.scalar(0, dtype(type))
    defp neutral(:window_product, type), do: Making.scalar(1, dtype(type))
    defp neutral(:window_max, type), do: extreme(type, -1)
    defp neutral(:window_min, type), do: extreme(type, 1)

    # The infinities of floats are quotients, since constants of programs are finite.
    defp extreme({kind, _} = type, sign) when kind in [:f, :bf] do
      Op.divide(Making.scalar(sign, dtype(type)), Making.scalar(0, dtype(type)))
    end

    defp extreme({:u, _} = type, -1), do: Making.scalar(0, dtype(type))
    defp extreme({:u, 64}, 1), do: unsupported("window_min of u64")
    defp extreme({:u, n} = type, 1), do: Making.scalar(Bitwise.bsl(1, n) - 1, dtype(type))
    defp extreme({:s, n} = type, -1), do: Making.scalar(-Bitwise.bsl(1, n - 1), dtype(type))
    defp extreme({:s, n} = type, 1), do: Making.scalar(Bitwise.bsl(1, n - 1) - 1, dtype(type))

    # -------------------------------------------------------------------------- Convolutions

    defp conv(out, a, kernel, options) do
      rank = length(a.shape) - 2
      if rank not in 1..3, do: unsupported("conv along #{rank} axes")
      if options[:batch_group_size] > 1, do: unsupported("conv with groups of batches")
      if match?({:c, _}, out.type), do: unsupported("conv of complex numbers")

      if Enum.any?(options[:padding], fn {low, high} -> low < 0 or high < 0 end),
        do: unsupported("conv with negative padding")

      type = if match?({kind, _} when kind in [:s, :u], out.type), do: {:f, 32}, else: out.type
      inner = Enum.to_list(2..(rank + 1))
      last = [0] ++ inner ++ [1]
      x = a |> cast(type) |> transposed(options[:input_permutation]) |> transposed(last)

      weight =
        kernel |> cast(type) |> transposed(options[:kernel_permutation]) |> transposed(last)

      y =
        Op.conv_general(x, weight,
          stride: options[:strides],
          padding: Enum.map(options[:padding], &Tuple.to_list/1),
          kernel_dilation: options[:kernel_dilation],
          input_dilation: options[:input_dilation],
          groups: options[:feature_group_size]
        )

      first = [0, rank + 1] ++ Enum.to_list(1..rank)
      permutation = options[:output_permutation]
      back = for axis <- 0..(rank + 1), do: Enum.find_index(permutation, &(&1 == axis))
      y = y |> transposed(first) |> transposed(back)
      Op.astype(y, dtype: dtype(out.type))
    end
  end
end
