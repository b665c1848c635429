defmodule CowMLX.ModelTest do
  use CowMLX.Case, async: true

  test "a model is loaded with progress" do
    me = self()
    folder = System.fetch_env!("COWMLX_TEST_MODEL")
    {:ok, model} = Model.load(folder, on_progress: &send(me, {&1, &2}))
    assert_received {fraction, stage} when is_float(fraction) and is_binary(stage)
    assert {:ok, %{"vocabulary_size" => size}} = Model.info(model)
    assert size > 0
    assert :ok = Model.free(model)
  end

  test "a folder that is not there, and one that is no text, are errors" do
    assert {:error, %Error{op: :model_load_async, status: :enoent, reason: :file_not_found}} =
             Model.load("/nowhere")

    assert {:error, %Error{reason: :wrong_type}} = Model.load(17)
    assert {:error, %Error{reason: :wrong_type}} = Model.load("a\0b")
    assert_raise Error, fn -> Model.load!("/nowhere") end
  end

  test "text becomes tokens and text again" do
    {:ok, tokens} = Model.tokenize(model(), "A fox eats berries.")
    assert Enum.all?(tokens, &is_integer/1)
    assert {:ok, "A fox eats berries."} = Model.detokenize(model(), tokens)
    {:ok, opened} = Model.tokenize(model(), "A fox", [:add_special])
    assert length(opened) >= 2
    assert {:error, %Error{reason: :wrong_type}} = Model.tokenize(model(), "A fox", [:nothing])
  end

  test "conversations are rendered" do
    assert {:ok, [_ | _] = tokens} = Model.chat_prompt(model(), question())
    assert {:ok, more} = Model.chat_prompt(model(), question(), %{add_generation_prompt: false})
    assert length(more) < length(tokens)

    assert {:error, %Error{reason: :unknown_option}} =
             Model.chat_prompt(model(), question(), %{colour: "red"})
  end

  test "embeddings are rows of numbers of length 1" do
    {:ok, [one, two]} = Model.embed(model(), ["A fox.", "A calf."])
    assert length(one) == length(two)
    assert_in_delta Enum.sum(Enum.map(one, &(&1 * &1))), 1.0, 1.0e-3
    assert one != two
  end
end
