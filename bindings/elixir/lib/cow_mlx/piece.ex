defmodule CowMLX.Piece do
  @moduledoc """
  One generated token.

    * `:text` whole UTF-8 characters, which may be `""`;
    * `:token` its id; `:logprob` the natural logarithm of its probability, or nil unless the
      option `:logprobs` asks for it;
    * `:finish` `:none`, or why the generation ends with it, such as `:stop` or `:length`.
  """

  defstruct [:text, :token, :logprob, finish: :none]

  @type t :: %__MODULE__{
          text: String.t(),
          token: integer,
          logprob: float | nil,
          finish: atom
        }
end
