defmodule CowMLX.GuideTest do
  @moduledoc "The code of the tabs of docs/guides, which tests compare with this file."
  use CowMLX.Case, async: false

  import ExUnit.CaptureIO

  setup do
    %{model: model(), context: CowMLX.Context.create!(model())}
  end

  test "a conversation", %{context: context} do
    printed =
      capture_io(fn ->
        ask = fn question, messages ->
          messages = messages ++ [%{role: "user", content: question}]
          answer = CowMLX.Chat.answer!(context, messages).text
          IO.puts(answer)
          messages ++ [%{role: "assistant", content: answer}]
        end

        messages = [%{role: "system", content: "You are called Bella."}]
        Enum.reduce(["What colour is a fox?", "And what does it eat?"], messages, ask)
      end)

    assert printed == "A fox is red.\nA fox eats berries.\n"
  end

  test "tools", %{context: context} do
    printed =
      capture_io(fn ->
        parameters = %{
          type: "object",
          required: ["city"],
          properties: %{city: %{type: "string"}}
        }

        tool = %{
          name: "get_weather",
          description: "Get the weather in a city.",
          parameters: parameters
        }

        options = [chat: %{tools: [%{type: "function", function: tool}]}]
        question = %{role: "user", content: "What is the weather in Rome?"}
        %{tool_calls: [call]} = CowMLX.Chat.answer!(context, [question], options)
        IO.puts("[#{call.name} #{JSON.encode!(call.arguments)}]")

        calls = [%{type: "function", function: call}]
        called = %{role: "assistant", tool_calls: calls}
        result = %{role: "tool", content: "sunny, 21 degrees"}
        answer = CowMLX.Chat.answer!(context, [question, called, result], options)
        IO.puts(answer.text)
      end)

    assert printed =~ "[get_weather {\"city\":\"Rome\"}]\n"
    assert printed =~ "sunny"
  end

  test "structured output", %{context: context} do
    printed =
      capture_io(fn ->
        schema = %{
          type: "object",
          required: ["name", "legs"],
          properties: %{
            name: %{enum: ["cow", "fox", "owl"]},
            legs: %{type: "integer", maximum: 4}
          },
          additionalProperties: false
        }

        messages = [%{role: "user", content: "Describe a cow."}]
        options = [grammar: schema, grammar_kind: :json_schema]
        answer = CowMLX.Chat.answer!(context, messages, options)
        IO.puts(answer.text)
      end)

    assert %{"name" => "cow", "legs" => 2} = JSON.decode!(printed)
  end

  test "search", %{model: model} do
    printed =
      capture_io(fn ->
        documents = ["A fox eats berries.", "A cow says moo.", "The capital of France is Paris."]
        vectors = CowMLX.Model.embed!(model, documents)
        [query] = CowMLX.Model.embed!(model, ["What sound does a cow make?"])
        dot = fn vector -> Enum.zip_with(vector, query, &(&1 * &2)) |> Enum.sum() end

        {best, highest} =
          documents |> Enum.zip(Enum.map(vectors, dot)) |> Enum.max_by(&elem(&1, 1))

        IO.puts("#{Float.round(highest, 2)} #{best}")
      end)

    assert printed == "0.81 A cow says moo.\n"
  end
end
