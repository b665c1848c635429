defmodule CowMLX do
  @moduledoc """
  Language models, arrays, programs and trainings on mlx, in the process of the node.

      CowMLX.start!()
      model = CowMLX.Model.load!("models/calf")
      context = CowMLX.Context.create!(model)
      CowMLX.Chat.answer!(context, [%{role: "user", content: "What is 3 + 4?"}]).text

  No call blocks a scheduler: the node's poller or a thread of the binding waits, and the process
  gets a message. Functions return `{:ok, result}`, `:ok` or `{:error, %CowMLX.Error{}}`; their forms
  with `!` raise.

  | module | |
  |---|---|
  | `CowMLX.Runtime` | starting and stopping |
  | `CowMLX.Model`, `CowMLX.Context`, `CowMLX.Chat` | language models |
  | `CowMLX.Array`, `CowMLX.Program`, `CowMLX.Op` | computations |
  | `CowMLX.Training` | training of programs and language models |
  | `CowMLX.Serving` | a supervised process that serves many callers |
  """

  @doc "Open the library and start its runtime: see `CowMLX.Runtime.start/1`."
  @spec start(keyword) :: :ok | {:error, CowMLX.Error.t()}
  defdelegate start(options \\ []), to: CowMLX.Runtime

  @doc "The same as `start/1`; raises a `CowMLX.Error`."
  @spec start!(keyword) :: :ok
  defdelegate start!(options \\ []), to: CowMLX.Runtime

  @doc "Undo one start: see `CowMLX.Runtime.stop/0`."
  @spec stop() :: :ok | {:error, CowMLX.Error.t()}
  defdelegate stop(), to: CowMLX.Runtime

  @doc "The version of the library, or nil before the first start."
  @spec version() :: String.t() | nil
  defdelegate version(), to: CowMLX.Runtime
end
