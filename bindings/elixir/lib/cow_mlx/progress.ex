defmodule CowMLX.Training.Progress do
  @moduledoc """
  The callback that `CowMLX.Training.fit/3` uses by default: a line for the current step, rewritten
  in place, and one for each evaluation and for the end.

      step 120 of 468  loss 0.3127  accuracy 91.2 %  8123 targets/s  4 s left
  """

  @doc "A callback that prints to a device."
  @spec new(IO.device()) :: CowMLX.Training.callback()
  def new(device \\ :stdio) do
    fn event -> print(device, event) end
  end

  defp print(device, %{kind: :step} = event), do: IO.write(device, "\r\e[K" <> line(event))

  defp print(device, %{kind: :evaluation} = event),
    do: IO.puts(device, "\r\e[Kepoch #{event.epoch}  #{validation(event)}")

  defp print(device, %{kind: :checkpoint} = event),
    do: IO.puts(device, "\r\e[Ksaved at step #{event.step}")

  defp print(device, %{kind: :end} = event),
    do: IO.puts(device, "\r\e[Kended by #{event.finish} after #{event.step} steps")

  @doc "The text of an event."
  @spec line(map) :: String.t()
  def line(event) do
    [
      steps(event),
      event.loss && "loss #{decimals(event.loss, 4)}",
      event.accuracy && "accuracy #{decimals(100 * event.accuracy, 1)} %",
      event.tokens_per_second && "#{round(event.tokens_per_second)} targets/s",
      event.remaining && "#{round(event.remaining)} s left"
    ]
    |> Enum.filter(& &1)
    |> Enum.join("  ")
  end

  defp steps(%{steps: 0, step: step}), do: "step #{step}"
  defp steps(%{steps: steps, step: step}), do: "step #{step} of #{steps}"

  defp validation(event) do
    accuracy = if event.accuracy, do: "  accuracy #{decimals(100 * event.accuracy, 1)} %"
    "validation loss #{decimals(event.validation_loss, 4)}#{accuracy}"
  end

  defp decimals(number, count) when is_number(number),
    do: :erlang.float_to_binary(number * 1.0, decimals: count)

  defp decimals(other, _count), do: inspect(other)
end
