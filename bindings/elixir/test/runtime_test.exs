defmodule CowMLX.RuntimeTest do
  use CowMLX.Case, async: true

  test "the runtime describes itself" do
    assert {:ok, %{"abi" => 1, "handles" => %{"model" => _}}} = Runtime.info()
    assert Runtime.version() == Runtime.info!()["library"]
    assert :ok = Runtime.trim_memory()
  end

  test "other parameters are refused while it runs, and starts are counted" do
    assert {:error, %Error{reason: :other_parameters}} = Runtime.start(threads: 1)
    assert :ok = Runtime.start()
    assert :ok = Runtime.stop()
    assert {:ok, _} = Runtime.info()
  end

  test "a supervised runtime holds one start" do
    pid = start_supervised!({Runtime, name: CowMLX.Other, device: "cpu", log: nil})
    assert Process.alive?(pid)
    stop_supervised!(Runtime)
    assert {:ok, _} = Runtime.info()
  end

  test "options that do not exist are refused" do
    assert {:error, %Error{reason: :unknown_option}} = Runtime.start(colour: 1)
    assert {:error, %Error{reason: :wrong_type}} = Runtime.start(threads: "two")
    assert {:error, %Error{}} = Runtime.start(log: "me")
  end
end
