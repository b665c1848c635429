if Code.ensure_loaded?(Nx) do
  defmodule CowMLX.Nx.Elementwise do
    @moduledoc false
    # Operations of Nx on each element: their results have the type of `out`.

    import CowMLX.Nx.Types, only: [cast: 2, truth: 1, nonzero: 1, unsupported: 1, dtype: 1]
    alias CowMLX.Op

    @plain_unary [
      exp: :exp,
      expm1: :expm1,
      log: :log,
      log1p: :log1p,
      sigmoid: :sigmoid,
      cos: :cos,
      sin: :sin,
      tan: :tan,
      cosh: :cosh,
      sinh: :sinh,
      tanh: :tanh,
      acosh: :arccosh,
      asinh: :arcsinh,
      atanh: :arctanh,
      acos: :arccos,
      asin: :arcsin,
      atan: :arctan,
      sqrt: :sqrt,
      rsqrt: :rsqrt,
      erf: :erf,
      erf_inv: :erfinv,
      ceil: :ceil,
      floor: :floor,
      negate: :negative,
      sign: :sign,
      conjugate: :conjugate,
      bitwise_not: :bitwise_invert
    ]
    @unary Keyword.keys(@plain_unary) ++
             [:abs, :round, :cbrt, :erfc, :real, :imag, :is_nan, :is_infinity]
    @plain_binary [
      add: :add,
      subtract: :subtract,
      multiply: :multiply,
      divide: :divide,
      pow: :power,
      atan2: :arctan2,
      max: :maximum,
      min: :minimum,
      bitwise_and: :bitwise_and,
      bitwise_or: :bitwise_or,
      bitwise_xor: :bitwise_xor
    ]
    @compare [:equal, :not_equal, :greater, :less, :greater_equal, :less_equal]
    @logical [:logical_and, :logical_or, :logical_xor]
    @binary Keyword.keys(@plain_binary) ++
              @compare ++ @logical ++ [:remainder, :quotient, :left_shift, :right_shift]

    @doc "The operations of one and of two operands."
    def unary, do: @unary
    def binary, do: @binary

    # Of complex numbers Nx and mlx have other branches, and other results at infinity.
    @complex [:negate, :conjugate, :exp, :abs, :real, :imag, :is_nan, :is_infinity]

    @doc "The result of an operation."
    def lower(op, %{type: {:c, _}}, [_]) when op not in @complex,
      do: unsupported("#{op} of complex numbers")

    def lower(op, out, [a]) when is_map_key(%{ceil: 1, floor: 1}, op) do
      if float?(a.type), do: apply(Op, op, [cast(a, out.type)]), else: cast(a, out.type)
    end

    for {op, name} <- @plain_unary, op not in [:ceil, :floor] do
      def lower(unquote(op), out, [a]), do: Op.unquote(name)(cast(a, out.type))
    end

    def lower(:abs, _out, [%{type: {:u, _}} = a]), do: a.x
    def lower(:abs, out, [a]), do: cast(%{a | x: Op.abs(a.x), type: real(a.type)}, out.type)

    # Halves are rounded away from 0.
    def lower(:round, out, [a]) do
      if float?(a.type) do
        x = cast(a, out.type)
        low = Op.floor(Op.abs(x))
        up = Op.astype(Op.greater_equal(Op.subtract(Op.abs(x), low), 0.5), dtype: dtype(out.type))
        rounded = Op.multiply(Op.sign(x), Op.add(low, up))
        Op.where(Op.isfinite(x), rounded, x)
      else
        cast(a, out.type)
      end
    end

    def lower(:cbrt, out, [a]) do
      x = cast(a, out.type)
      y = Op.multiply(Op.sign(x), Op.power(Op.abs(x), 1 / 3))
      # A step of Newton's method.
      better = Op.subtract(y, Op.divide(Op.subtract(y, Op.divide(x, Op.square(y))), 3))
      Op.where(Op.logical_and(Op.isfinite(x), Op.not_equal(x, 0)), better, x)
    end

    # 1 - erf is 0 where erf rounds to 1.
    def lower(:erfc, _out, [_]), do: unsupported("erfc")
    def lower(:real, out, [%{type: {:c, _}} = a]), do: real_part(Op.real(a.x), out)
    def lower(:real, out, [a]), do: cast(a, out.type)
    def lower(:imag, out, [%{type: {:c, _}} = a]), do: real_part(Op.imag(a.x), out)
    def lower(:imag, out, [a]), do: Op.zeros_like(cast(a, out.type))

    def lower(op, _out, [a]) when op in [:is_nan, :is_infinity] do
      cond do
        match?({:c, _}, a.type) -> truth(of_parts(op, a))
        float?(a.type) -> truth(test(op, a.x))
        true -> truth(Op.not_equal(a.x, a.x))
      end
    end

    for {op, name} <- @plain_binary do
      def lower(unquote(op), out, [a, b]) do
        check(unquote(op), out.type)
        Op.unquote(name)(cast(a, out.type), cast(b, out.type))
      end
    end

    def lower(op, _out, [a, b]) when op in @compare do
      type = Nx.Type.merge(a.type, b.type)
      truth(apply(Op, op, [cast(a, type), cast(b, type)]))
    end

    def lower(op, _out, [a, b]) when op in @logical,
      do: truth(apply(Op, op, [nonzero(a), nonzero(b)]))

    def lower(:remainder, %{type: {:c, _}}, _), do: unsupported("remainder of complex numbers")
    def lower(:remainder, out, [a, b]), do: rest(cast(a, out.type), cast(b, out.type))

    def lower(:quotient, out, [a, b]) do
      {a, b} = {cast(a, out.type), cast(b, out.type)}
      Op.floor_divide(Op.subtract(a, rest(a, b)), b)
    end

    def lower(op, out, [a, b]) when op in [:left_shift, :right_shift],
      do: apply(Op, op, [cast(a, out.type), cast(b, out.type)])

    # With the sign of the dividend.
    defp rest(a, b) do
      rest = Op.remainder(a, b)
      differs = Op.logical_xor(Op.less(a, 0), Op.less(b, 0))
      moved = Op.logical_and(Op.not_equal(rest, 0), differs)
      Op.where(moved, Op.subtract(rest, b), rest)
    end

    defp check(op, {:c, _}) when op in [:atan2, :max, :min, :pow],
      do: unsupported("#{op} of complex numbers")

    defp check(_op, _type), do: :ok

    defp float?({kind, _}), do: kind in [:f, :bf]
    defp real({:c, 64}), do: {:f, 32}
    defp real(type), do: type
    defp real_part(x, out), do: cast(%{x: x, type: {:f, 32}}, out.type)

    defp test(:is_nan, x), do: Op.isnan(x)
    defp test(:is_infinity, x), do: Op.isinf(x)
    defp of_parts(op, a), do: Op.logical_or(test(op, Op.real(a.x)), test(op, Op.imag(a.x)))
  end
end
