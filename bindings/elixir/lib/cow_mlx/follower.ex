defmodule CowMLX.Follower do
  @moduledoc false
  # Takes what a call that has returned at once computes. The node's poller waits for the library's
  # descriptor, and the process for a message. With a function for logits a job waits instead, whose
  # thread may be held until the process has answered.

  alias CowMLX.{Call, Logits, NIF}

  @enforce_keys [:follower, :object, :kind, :ref]
  defstruct [:follower, :object, :kind, :ref, :on_logits, :read, ended: false, failed: nil]

  @doc """
  A stream of results.

    * `begin` makes the call; it returns `:ok` or `{:error, error}`.
    * `read` makes an element of a result, or nil;
    * `on_logits` changes logits, or is nil.
  """
  @spec stream(
          reference,
          :pieces | :events,
          (-> term),
          (tuple -> term),
          Logits.processor() | nil
        ) :: Enumerable.t()
  def stream(context, kind, begin, read, on_logits) do
    Stream.resource(
      fn -> %{start!(context, kind, begin) | on_logits: on_logits, read: read} end,
      &next/1,
      &settle/1
    )
  end

  defp start!(context, kind, begin) do
    with :ok <- Call.wait(:context_watch, [context]),
         {:ok, follower} <- follow(context, kind) do
      case begin.() do
        :ok ->
          follower

        {:error, error} ->
          NIF.leave(follower.follower)
          raise error
      end
    else
      {:error, error} -> raise error
    end
  end

  @doc "Follow a context or a model that is being loaded."
  @spec follow(reference, :pieces | :events | :load) :: {:ok, struct} | {:error, term}
  def follow(object, kind) do
    case NIF.follow(object) do
      {:ok, follower} ->
        {:ok, %__MODULE__{follower: follower, object: object, kind: kind, ref: make_ref()}}

      problem ->
        Call.result(:wake_fd, [], problem)
    end
  end

  defp next(%{failed: error}) when error != nil, do: raise(error)
  defp next(%{ended: true} = follower), do: {:halt, follower}

  defp next(follower) do
    {results, follower} = take(follower)
    {for(result <- results, element = follower.read.(result), do: element), follower}
  end

  @doc "Wait for results; the follower then knows whether there will be more."
  @spec take(struct) :: {[tuple | atom], struct}
  def take(%{on_logits: function} = follower) when function != nil, do: take_asked(follower)

  def take(%{follower: resource, ref: ref} = follower) do
    case NIF.take(resource, ref, follower.kind) do
      :wait ->
        receive do
          {:select, ^resource, ^ref, :ready_input} -> take(follower)
        end

      results when is_list(results) ->
        sort(results, follower)

      problem ->
        {[], %{follower | failed: error(follower, problem)}}
    end
  end

  defp take_asked(follower) do
    job = make_ref()

    case NIF.call(job, :context_take, [follower.object, follower.kind]) do
      :ok -> asked(follower, job)
      problem -> {[], %{follower | failed: error(follower, problem)}}
    end
  end

  defp asked(follower, job) do
    receive do
      {^job, {:logits, tokens, logits, asking}} ->
        guarded(follower, job, asking, fn ->
          NIF.answer(asking, Logits.changed(follower.on_logits, tokens, logits))
        end)

        asked(follower, job)

      {^job, {:progress, _, _, _} = progress} ->
        guarded(follower, job, nil, fn -> follower.read.(progress) end)
        asked(follower, job)

      {^job, results} when is_list(results) ->
        sort(results, follower)
    end
  end

  # A function that fails ends the generation, and no message of the job stays behind.
  defp guarded(follower, job, asking, function) do
    function.()
  catch
    kind, reason ->
      if asking, do: NIF.answer(asking, nil)
      Call.direct(:context_cancel, [follower.object])
      asked(deaf(follower), job)
      :erlang.raise(kind, reason, __STACKTRACE__)
  end

  # Its functions are not called any more.
  defp deaf(%{on_logits: nil} = follower), do: follower
  defp deaf(follower), do: %{follower | on_logits: &Logits.halt/2, read: fn _ -> nil end}

  defp sort(results, follower) do
    case List.last(results) do
      {:error, _, _, _} = failure ->
        failed = %{follower | failed: error(follower, failure)}
        {Enum.drop(results, -1), failed}

      last when last == :done or elem(last, 0) == :done ->
        {results, %{follower | ended: true}}

      _ ->
        {results, follower}
    end
  end

  @ops %{pieces: :context_next, events: :context_next_event, load: :model_load}

  defp error(follower, failure) do
    {:error, error} = Call.result(@ops[follower.kind], [], failure)
    error
  end

  # The context is busy until its call has ended.
  defp settle(%{ended: ended, failed: failed} = follower) do
    unless ended or failed do
      Call.direct(:context_cancel, [follower.object])
      drain(deaf(follower))
    end

    leave(follower)
  end

  defp drain(%{ended: true}), do: :ok
  defp drain(%{failed: error}) when error != nil, do: :ok
  defp drain(follower), do: follower |> take() |> elem(1) |> drain()

  @doc "Take no more."
  @spec leave(struct) :: :ok
  def leave(%{follower: resource, ref: ref}) do
    NIF.leave(resource)

    receive do
      {:select, ^resource, ^ref, _} -> :ok
    after
      0 -> :ok
    end
  end
end
