defmodule CowMLX.ArrayTest do
  use CowMLX.Case, async: true
  doctest CowMLX.Array
  doctest CowMLX.Error

  test "every dtype comes back as it went in" do
    for {dtype, _} <- Array.dtypes(), dtype not in [:bool, :complex64] do
      array = Array.new!([[1, 2], [3, 4]], dtype: dtype)
      assert array.dtype == dtype and array.shape == [2, 2]
      assert Array.to_list!(array) == [[1, 2], [3, 4]], "#{dtype}"
    end

    assert Array.to_list!(Array.new!([true, false])) == [true, false]
    assert Array.to_list!(Array.new!([{1.5, -2.0}], dtype: :complex64)) == [{1.5, -2.0}]
  end

  test "numbers that are not finite are atoms" do
    data = [:nan, :infinity, :neg_infinity, 1.5]

    for dtype <- [:float16, :bfloat16, :float32, :float64] do
      assert Array.to_list!(Array.new!(data, dtype: dtype)) == data
    end
  end

  test "shapes without elements and without dimensions" do
    assert Array.to_list!(Array.new!(7)) == 7
    assert Array.to_list!(Array.from_binary!("", :float32, [2, 0])) == [[], []]
  end

  test "a large binary outlives its array" do
    numbers = for n <- 1..10_000, into: <<>>, do: <<n * 1.0::native-float-32>>
    array = Array.from_binary!(numbers, :float32, [10_000])
    binary = Array.to_binary!(array)
    Array.free(array)
    assert binary == numbers
  end

  test "operations apply to arrays, with numbers beside them" do
    a = Array.new!([[1.0, 2.0], [3.0, 4.0]])
    assert Array.to_list!(Op.sum(a, axis: 1)) == [3.0, 7.0]
    assert Array.to_list!(Op.add(a, 1)) == [[2.0, 3.0], [4.0, 5.0]]
    assert Array.to_list!(Op.matmul(a, a)) == [[7.0, 10.0], [15.0, 22.0]]
    assert {:ok, [sum]} = Array.apply(:sum, [a], %{axis: 0})
    assert Array.to_list!(sum) == [4.0, 6.0]
  end

  test "what an operation refuses is raised, with the operation" do
    a = Array.new!([1.0, 2.0])
    error = assert_raise Error, fn -> Op.sum(a, axis: 3) end
    assert error.details.op == "sum"
    assert {:error, %Error{op: :array_apply}} = Array.apply("sing", [a])
    assert_raise Error, fn -> Op.add(a, "one") end
  end

  test "unusable data are refused" do
    assert {:error, %Error{reason: :wrong_type}} = Array.new([[1, 2], [3]])
    assert {:error, %Error{reason: :wrong_type}} = Array.new([1, :two])
    assert {:error, %Error{reason: :wrong_type}} = Array.new([300], dtype: :uint8)
    assert {:error, %Error{reason: :out_of_range}} = Array.from_binary(<<0>>, :float31, [1])
    assert {:error, %Error{status: :einval}} = Array.from_binary(<<0>>, :float32, [1])
    assert {:error, %Error{}} = Array.from_binary(<<0>>, :uint8, [:one])
  end

  test "arrays are saved and loaded by their names" do
    path =
      Path.join(System.tmp_dir!(), "cowmlx-#{System.unique_integer([:positive])}.safetensors")

    assert :ok = Array.save(path, %{"a" => Array.new!([1, 2]), "b" => Array.new!([0.5])})
    assert {:ok, %{"a" => a, "b" => b}} = Array.load(path, ["a", "b"])
    assert Array.to_list!(a) == [1, 2] and Array.to_list!(b) == [0.5]
    assert {:ok, %{"tensors" => %{"a" => %{"shape" => [2]}}}} = Array.info(path)
    assert {:error, %Error{}} = Array.load(path, ["c"])
    File.rm!(path)
  end
end
