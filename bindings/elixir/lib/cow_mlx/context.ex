defmodule CowMLX.Context do
  @moduledoc """
  A sequence of tokens and its cache.

      {:ok, context} = CowMLX.Context.create(model)
      {:ok, result} = CowMLX.Context.complete(context, "Once upon a time", max_tokens: 20)
      result.text

  `generate/3` is a `Stream` of pieces; `CowMLX.Chat` answers conversations. One call at a time runs
  on a context. When the process that reads a stream ends, its generation is cancelled.
  """

  alias CowMLX.{Call, Error, Follower, Methods, Model, Options, Piece}

  @enforce_keys [:ref]
  defstruct [:ref, :model]
  @type t :: %__MODULE__{ref: reference, model: Model.t() | nil}

  @typedoc "A text, or the tokens of the whole sequence so far."
  @type prompt :: String.t() | [integer]

  use CowMLX.Methods, noun: :context, except: [:create, :set_adapter]

  @doc """
  Create a context of a model.

  Options are the members of `cow_mlx_context_params`:

  #{Options.documented(:context_params)}
  """
  @spec create(Model.t(), keyword) :: {:ok, t} | {:error, Error.t()}
  def create(model, options \\ []) do
    with {:ok, context} <- Call.make(:context_create, [model, options]) do
      {:ok, %{context | model: model}}
    end
  end

  @doc "The same as `create/2`; raises a `CowMLX.Error`."
  @spec create!(Model.t(), keyword) :: t
  def create!(model, options \\ []), do: Methods.ok!(create(model, options))

  @doc "Use an adapter from now on, or none (nil). A change clears the context's tokens."
  @spec set_adapter(t, CowMLX.Adapter.t() | nil) :: :ok | {:error, Error.t()}
  def set_adapter(context, adapter), do: Call.make(:context_set_adapter, [context, adapter])

  @doc """
  A stream of `CowMLX.Piece`: processes the prompt and generates.

  The generation begins when the stream is read, and is cancelled when reading ends early. A failure
  raises a `CowMLX.Error`. `prompt` is a text, whose opening tokens are added, or all tokens.

  Options: `:on_progress`, a function of the processed tokens of the prompt and their number;
  `:on_logits`, a `t:CowMLX.Logits.processor/0` that changes logits before a token is sampled; and the
  members of `cow_mlx_generation_params`:

  #{Options.documented(:generation_params)}
  """
  @spec generate(t, prompt, keyword) :: Enumerable.t()
  def generate(%__MODULE__{} = context, prompt, options \\ []) do
    {functions, options} = Options.functions(options)

    Follower.stream(
      context.ref,
      :pieces,
      fn -> begin_async(context, prompt, options, functions) end,
      fn
        {:piece, text, token, logprob, finish} -> piece(text, token, logprob, finish)
        {:done, _, token, _, finish} -> piece("", token, :nan, finish)
        {:progress, done, total, _} -> progress(functions[:on_progress], done, total)
      end,
      functions[:on_logits]
    )
  end

  defp begin_async(context, prompt, options, functions) do
    with {:ok, tokens} <- tokens_of(context, prompt),
         {:ok, binary} <- Call.tokens(:context_begin_async, :prompt, tokens),
         {:ok, params} <- Options.generation(:context_begin_async, options, functions) do
      Call.copying(:context_begin_async, [context.ref, binary, params])
    end
  end

  defp tokens_of(%{model: %Model{} = model}, text) when is_binary(text),
    do: Model.tokenize(model, text, [:add_special])

  defp tokens_of(_context, tokens), do: {:ok, tokens}

  defp piece(text, token, logprob, finish) do
    logprob = if logprob == :nan, do: nil, else: logprob
    %Piece{text: text, token: token, logprob: logprob, finish: Options.name(:finish, finish)}
  end

  defp progress(nil, _done, _total), do: nil

  defp progress(on_progress, done, total) do
    on_progress.(trunc(done), trunc(total))
    nil
  end

  @doc """
  Generate to the end: a map of the `:text`, the reason `:finish` and the `:stats`.

  Takes the options of `generate/3`.
  """
  @spec complete(t, prompt, keyword) :: {:ok, map} | {:error, Error.t()}
  def complete(context, prompt, options \\ []) do
    pieces = context |> generate(prompt, options) |> Enum.to_list()
    finish = List.last(pieces).finish

    with {:ok, stats} <- stats(context) do
      {:ok, %{text: Enum.map_join(pieces, & &1.text), finish: finish, stats: stats}}
    end
  rescue
    error in Error -> {:error, error}
  end

  @doc "The same as `complete/3`; raises a `CowMLX.Error`."
  @spec complete!(t, prompt, keyword) :: map
  def complete!(context, prompt, options \\ []),
    do: Methods.ok!(complete(context, prompt, options))

  @doc """
  Generate in a separate process, linked to this one, which gets messages:

    * `{ref, {:piece, piece}}` for each piece;
    * `{ref, :done}` or `{ref, {:error, error}}`, the last.

  Returns `{ref, pid}`. `cancel/1` or the end of this process ends it.
  """
  @spec generate_async(t, prompt, keyword) :: {reference, pid}
  def generate_async(context, prompt, options \\ []) do
    send_all(generate(context, prompt, options), :piece)
  end

  @doc false
  @spec send_all(Enumerable.t(), atom) :: {reference, pid}
  def send_all(stream, name) do
    {owner, ref} = {self(), make_ref()}

    pid =
      spawn_link(fn ->
        Process.flag(:trap_exit, false)

        last =
          try do
            Enum.each(stream, &send(owner, {ref, {name, &1}}))
            :done
          rescue
            error in Error -> {:error, error}
          end

        send(owner, {ref, last})
      end)

    {ref, pid}
  end

  @doc "Free the context. A call that runs on it ends with `:ecanceled`."
  @spec free(t) :: :ok | {:error, Error.t()}
  def free(%__MODULE__{ref: ref}), do: Call.wait(:free, [ref])
end
