defmodule CowMLX.Logits do
  @moduledoc """
  A processor of logits, the option `:on_logits` of `CowMLX.Context.generate/3`,
  `CowMLX.Context.complete/3` and `CowMLX.Chat`.

  It gets all tokens of the context and the model's logits, before bias and penalties, and returns
  what changes. With this one no token with an odd number follows:

      even = fn _tokens, logits ->
        vocabulary = div(byte_size(logits), 4)
        Map.new(1..(vocabulary - 1)//2, &{&1, :neg_infinity})
      end

      CowMLX.Context.complete(context, "Once", max_tokens: 20, on_logits: even)

  It runs in the process that reads the stream, once for each token, while that token is waited for.
  Meanwhile the library and other processes go on. An exception ends the generation and is raised where
  the stream is read. When the process ends, or the context is freed or cancelled, so does the
  generation.
  """

  alias CowMLX.Error

  @typedoc "Native 32-bit floats, one for each token of the vocabulary."
  @type logits :: binary

  @typedoc """
  Returns one of:

    * a map, or a list of pairs, of the logits that change, by token: numbers or `:neg_infinity`,
      which forbids the token;
    * all logits, in the form that it gets them;
    * `:halt`, which ends the generation; its finish is `:canceled`.
  """
  @type processor ::
          ([integer], logits -> logits | Enumerable.t({integer, number | :neg_infinity}) | :halt)

  @doc false
  @spec changed(processor, binary, logits) :: logits | {binary, binary} | nil
  def changed(function, tokens, logits) do
    case function.(for(<<token::native-signed-32 <- tokens>>, do: token), logits) do
      :halt -> nil
      all when is_binary(all) and byte_size(all) == byte_size(logits) -> all
      some when is_map(some) or is_list(some) -> pairs(some, div(byte_size(logits), 4))
      other -> refuse(other, byte_size(logits))
    end
  end

  @doc false
  @spec halt(term, term) :: :halt
  def halt(_tokens, _logits), do: :halt

  defp pairs(some, vocabulary) do
    Enum.reduce(some, {<<>>, <<>>}, fn
      {token, value}, {tokens, values} when token in 0..(vocabulary - 1)//1 ->
        {<<tokens::binary, token::native-32>>, <<values::binary, float(token, value)::binary>>}

      other, _ ->
        refuse(other, 4 * vocabulary)
    end)
  end

  defp float(_token, :neg_infinity), do: <<0xFF800000::native-32>>

  defp float(token, value) do
    <<value::native-float-32>>
  rescue
    ArgumentError -> raise refusal({token, value}, "a number or :neg_infinity")
  end

  @spec refuse(term, integer) :: no_return
  defp refuse(given, bytes) do
    raise refusal(
            given,
            "a map or list of {token, logit} with tokens below #{div(bytes, 4)}, " <>
              "a binary of #{bytes} bytes, or :halt"
          )
  end

  defp refusal(given, accepted),
    do: Error.refused(:on_logits, "the result of :on_logits", given, accepted)
end
