defmodule CowMLX.Case do
  @moduledoc "What the tests share: the bundled model, and waiting for a state."
  use ExUnit.CaseTemplate

  using do
    quote do
      import CowMLX.Case
      alias CowMLX.{Array, Chat, Context, Control, Error, Model, Op, Program, Runtime, Training}
    end
  end

  @doc "The model, loaded once."
  def model do
    # Tests that run at once ask for one and the same.
    :persistent_term.get({__MODULE__, :model}, nil) ||
      :global.trans({__MODULE__, self()}, fn ->
        :persistent_term.get({__MODULE__, :model}, nil) || load()
      end)
  end

  defp load do
    model = CowMLX.Model.load!(System.fetch_env!("COWMLX_TEST_MODEL"))
    :persistent_term.put({__MODULE__, :model}, model)
    model
  end

  @doc "A question that the model answers with `3 + 4 = 7.`"
  def question, do: [%{role: "user", content: "What is 3 + 4?"}]

  @doc "The open handles of a kind."
  def open(kind), do: CowMLX.Runtime.info!()["handles"][to_string(kind)]

  @doc "Wait until a function gives true."
  def until(function, tries \\ 2000) do
    cond do
      function.() -> true
      tries == 0 -> false
      true -> Process.sleep(5) && until(function, tries - 1)
    end
  end

  @doc "Run a function in a process, and wait for the process's end."
  def in_process(function) do
    {pid, monitor} = spawn_monitor(function)

    receive do
      {:DOWN, ^monitor, :process, ^pid, reason} -> reason
    end
  end
end
