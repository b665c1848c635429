defmodule CowMLX.Chat do
  @moduledoc """
  Conversations on a context.

      messages = [%{role: "user", content: "What is 3 + 4?"}]
      {:ok, answer} = CowMLX.Chat.answer(context, messages)
      answer.text

  The same conversation with one more message continues from the context's tokens.
  """

  alias CowMLX.{Call, Context, Error, Follower, Methods, Options}

  defmodule Event do
    @moduledoc """
    An event of a chat.

      * `:kind` `:text`, `:reasoning`, `:tool_call` or `:end`;
      * `:text` the part of the answer; of a tool call its arguments, JSON;
      * `:name` of the tool; `:finish` why the answer has ended, with `:end`.
    """
    defstruct [:kind, :text, :name, :finish]
    @type t :: %__MODULE__{kind: atom, text: String.t(), name: String.t(), finish: atom}
  end

  @type messages :: [map | keyword] | String.t()

  @doc """
  A stream of `CowMLX.Chat.Event`. The chat begins when the stream is read.

  Options: `:chat`, options of the template such as `%{tools: tools}`, see
  `cow_mlx_model_chat_prompt()`; and those of `CowMLX.Context.generate/3`.
  """
  @spec stream(Context.t(), messages, keyword) :: Enumerable.t()
  def stream(%Context{} = context, messages, options \\ []) do
    {functions, options} = Options.functions(options)
    {chat, options} = Keyword.pop(options, :chat)

    Follower.stream(
      context.ref,
      :events,
      fn -> begin(context, messages, chat, options, functions) end,
      fn
        {:progress, done, total, _} -> report(functions[:on_progress], done, total)
        {_, kind, text, name, finish} -> event(kind, text, name, finish)
      end,
      functions[:on_logits]
    )
  end

  defp begin(context, messages, chat, options, functions) do
    with {:ok, json} <- Call.json(:context_chat_async, :messages, messages),
         {:ok, template} <- template(chat),
         {:ok, params} <- Options.generation(:context_chat_async, options, functions) do
      Call.copying(:context_chat_async, [context.ref, json, params, template])
    end
  end

  defp template(nil), do: {:ok, nil}
  defp template(options), do: Call.json(:context_chat_async, :chat, options)

  defp report(nil, _done, _total), do: nil

  defp report(on_progress, done, total) do
    on_progress.(trunc(done), trunc(total))
    nil
  end

  defp event(kind, text, name, finish) do
    %Event{
      kind: Options.name(:event, kind),
      text: text,
      name: name,
      finish: Options.name(:finish, finish)
    }
  end

  @doc """
  Answer a conversation: a map of the `:text`, the `:reasoning`, the `:tool_calls` (a list of
  `%{name: name, arguments: map}`), the reason `:finish` and the `:stats`.
  """
  @spec answer(Context.t(), messages, keyword) :: {:ok, map} | {:error, Error.t()}
  def answer(context, messages, options \\ []) do
    events = context |> stream(messages, options) |> Enum.to_list()

    with {:ok, stats} <- Context.stats(context) do
      {:ok,
       %{
         text: text_of(events, :text),
         reasoning: text_of(events, :reasoning),
         tool_calls: for(%{kind: :tool_call} = event <- events, do: tool_call(event)),
         finish: List.last(events).finish,
         stats: stats
       }}
    end
  rescue
    error in Error -> {:error, error}
  end

  @doc "The same as `answer/3`; raises a `CowMLX.Error`."
  @spec answer!(Context.t(), messages, keyword) :: map
  def answer!(context, messages, options \\ []),
    do: Methods.ok!(answer(context, messages, options))

  @doc """
  Answer in a separate process, linked to this one, which gets `{ref, {:event, event}}` for each
  event, and last `{ref, :done}` or `{ref, {:error, error}}`. Returns `{ref, pid}`.
  """
  @spec stream_async(Context.t(), messages, keyword) :: {reference, pid}
  def stream_async(context, messages, options \\ []),
    do: Context.send_all(stream(context, messages, options), :event)

  defp text_of(events, kind), do: for(%{kind: ^kind} = each <- events, into: "", do: each.text)
  defp tool_call(event), do: %{name: event.name, arguments: JSON.decode!(event.text)}
end
