defmodule CowMLX.Training do
  @moduledoc """
  Training of programs and of language models.

      {:ok, fitted} =
        CowMLX.Training.fit(program, %{x: images, y: labels},
          epochs: 3, batch_size: 128, optimizer: {:adam, learning_rate: 1.0e-3}, clip: 1.0,
          validation: %{x: other_images, y: other_labels})

      CowMLX.Training.parameters!(fitted.training)

      iex> alias CowMLX.{Array, Op, Program, Training}
      iex> x = Program.input("x", :float32, ["rows"])
      iex> w = Program.parameter("w", :float32, [], init: "zeros")
      iex> program = Program.build!(loss: Op.mean(Op.square(Op.subtract(x, w))))
      iex> options = [steps: 2, optimizer: {:sgd, learning_rate: 0.25}, callbacks: []]
      iex> {:ok, fitted} = Training.fit(program, %{x: [3, 5]}, options)
      iex> {fitted.event.step, Array.to_list!(Training.parameter!(fitted.training, :w))}
      {2, 3.0}

  A program has an output `loss`, and `correct` where the accuracy is wanted. Contexts generate
  meanwhile. A process that ends cancels the fit that it runs; the training keeps the state after
  its last step.
  """

  alias CowMLX.{Array, Call, Error, Methods, Model, NIF, Options, Program}
  alias CowMLX.Training.Progress

  @enforce_keys [:ref]
  defstruct [:ref, inputs: [], parameters: []]
  @type t :: %__MODULE__{ref: reference, inputs: list, parameters: [String.t()]}

  @typedoc """
  Arrays by the names of the program's inputs; or a function of the step, from 0, that gives such
  arrays or nil at the end, which the training then owns.
  """
  @type data :: keyword | map | [Array.t()] | (non_neg_integer -> term)

  @typedoc "A function of an event, a map. `:halt` ends the fit; any other value continues."
  @type callback :: (map -> :halt | term)

  use CowMLX.Methods,
    noun: :training,
    except: [:create, :create_for_model, :step, :fit, :evaluate, :parameter, :export]

  @doc """
  Create a training of a program, or of a language model.

  Options are the members of `cow_mlx_training_params`; `:optimizer` may be a name, such as `:adam`,
  or `{:adam, learning_rate: 1.0e-3}`, and `:initial` arrays by the names of parameters:

  #{Options.documented(:training_params)}
  """
  @spec create(Program.t() | Model.t(), keyword) :: {:ok, t} | {:error, Error.t()}
  def create(program_or_model, options \\ [])

  def create(%Program{} = program, options) do
    with {:ok, training} <- Call.make(:training_create, [program, initial(options)]) do
      {:ok,
       %{
         training
         | inputs: program.inputs,
           parameters: Enum.map(program.parameters, &elem(&1, 0))
       }}
    end
  end

  def create(%Model{} = model, options),
    do: Call.make(:training_create_for_model, [model, initial(options)])

  def create(other, _options),
    do: {:error, Error.refused(:training_create, "program", other, "a program or a model")}

  @doc "The same as `create/2`; raises a `CowMLX.Error`."
  @spec create!(Program.t() | Model.t(), keyword) :: t
  def create!(program_or_model, options \\ []), do: Methods.ok!(create(program_or_model, options))

  defp initial(options) do
    {arrays, options} = Keyword.pop(options, :initial, %{})
    {names, values} = Enum.unzip(arrays)
    options = Keyword.replace_lazy(options, :optimizer, &optimizer/1)

    if names == [],
      do: options,
      else: options ++ [initial_names: Enum.map(names, &to_string/1), initial_arrays: values]
  end

  defp optimizer(name) when is_atom(name) and name != nil, do: %{name: name}
  defp optimizer({name, options}), do: options |> Map.new() |> Map.put(:name, name)
  defp optimizer(other), do: other

  @doc "Make a step on a batch: its event, a map."
  @spec step(t, term) :: {:ok, map} | {:error, Error.t()}
  def step(%__MODULE__{} = training, inputs) do
    with {:ok, values} <- Program.values(:training_step, data_inputs(training, inputs), inputs) do
      Call.make(:training_step, [training, values])
    end
  end

  @doc "The same as `step/2`; raises a `CowMLX.Error`."
  @spec step!(t, term) :: map
  def step!(training, inputs), do: Methods.ok!(step(training, inputs))

  # A language model takes its tokens and targets.
  defp data_inputs(%{inputs: []}, _), do: [{"tokens", :int32, nil}, {"targets", :bool, nil}]

  defp data_inputs(%{inputs: inputs}, given) do
    if is_map(given) and (is_map_key(given, "key") or is_map_key(given, :key)),
      do: inputs,
      else: Enum.reject(inputs, &match?({"key", :uint32, [2]}, &1))
  end

  @doc """
  Train until an end that the options set. Gives a map of the `:training` and the last `:event`.

  `what` is a program or a model, for which a training is created, or a training, which continues.
  `data` are arrays, a function that gives batches, or for a language model JSON lines or a list of
  maps.

  Options, beside those of `create/2` unless a training is given:

    * `:epochs`, `:steps`, `:batch_size`, `:shuffle`, `:patience`, `:min_delta`, `:evaluate_every`,
      `:event_every`, `:folder`, `:save_every`, `:lines_options` as in `cow_mlx_fit_params`;
    * `:schedule`, the learning rate: a number, or a schedule such as `%{name: "cosine_decay", init:
      0.001, decay_steps: 1000}`;
    * `:clip`, a limit for the norm of the gradients, or `[norm: 1.0, value: 0.5]`;
    * `:validation`, data like `data`;
    * `:callbacks`, a list of functions of an event; `[CowMLX.Training.Progress.new()]` by default,
      which prints progress.
  """
  @spec fit(Program.t() | Model.t() | t, data | String.t() | [map], keyword) ::
          {:ok, %{training: t, event: map}} | {:error, Error.t()}
  def fit(what, data, options \\ []) do
    {callbacks, options} = Keyword.pop_lazy(options, :callbacks, fn -> [Progress.new()] end)
    {fitting, creating} = Keyword.split(options, [:validation, :steps, :epochs | fit_names()])

    with {:ok, training} <- training(what, creating),
         {:ok, params, batches, kept} <- fit_params(training, data, fitting),
         {:ok, event} <- run(training, params, batches, callbacks) do
      _ = kept
      {:ok, %{training: training, event: event}}
    end
  end

  @doc "The same as `fit/3`; raises a `CowMLX.Error`."
  @spec fit!(Program.t() | Model.t() | t, term, keyword) :: %{training: t, event: map}
  def fit!(what, data, options \\ []), do: Methods.ok!(fit(what, data, options))

  defp fit_names do
    for {name, _, _, _} <- CowMLX.Declarations.options()[:fit_params],
        name not in [:inputs, :next_batch, :validation, :lines],
        do: name
  end

  defp training(%__MODULE__{} = training, []), do: {:ok, training}

  defp training(%__MODULE__{}, [{name, value} | _]),
    do: {:error, Error.refused(:training_fit, name, value, "an option of create/2")}

  defp training(what, options) do
    {schedule, options} = Keyword.pop(options, :schedule)
    {clip, options} = Keyword.pop(options, :clip)
    create(what, options |> scheduled(schedule) |> clipped(clip))
  end

  defp scheduled(options, nil), do: options

  defp scheduled(options, schedule) do
    optimizer = options |> Keyword.get(:optimizer, :adam) |> optimizer()
    Keyword.put(options, :optimizer, Map.put(optimizer, :learning_rate, schedule))
  end

  defp clipped(options, nil), do: options
  defp clipped(options, norm) when is_number(norm), do: [{:clip_norm, norm} | options]

  defp clipped(options, limits) do
    Enum.reduce(limits, options, fn
      {:norm, norm}, options -> [{:clip_norm, norm} | options]
      {:value, value}, options -> [{:clip_value, value} | options]
      {other, _}, options -> [{:"clip_#{other}", nil} | options]
    end)
  end

  # The params as the NIF takes them, the function that gives batches, and arrays to hold meanwhile.
  defp fit_params(training, data, options) do
    {validation, options} = Keyword.pop(options, :validation)

    with {:ok, given, batches, first} <- data_params(training, data),
         {:ok, checked, second} <- validation_params(training, validation),
         {:ok, params} <- Options.lower(:training_fit, :fit_params, options ++ given ++ checked) do
      {:ok, Map.put(params, :next_batch, batches != nil), batches, first ++ second}
    end
  end

  defp data_params(_training, batches) when is_function(batches, 1), do: {:ok, [], batches, []}
  defp data_params(_training, lines) when is_binary(lines), do: {:ok, [lines: lines], nil, []}

  defp data_params(_training, [%{} = line | _] = lines) when not is_struct(line),
    do: {:ok, [lines: Enum.map_join(lines, "\n", &JSON.encode!/1)], nil, []}

  defp data_params(training, data) do
    with {:ok, arrays} <- arrays(training, data), do: {:ok, [inputs: arrays], nil, arrays}
  end

  defp validation_params(_training, nil), do: {:ok, [], []}

  defp validation_params(training, data) do
    with {:ok, arrays} <- arrays(training, data), do: {:ok, [validation: arrays], arrays}
  end

  # Data that are not arrays are uploaded.
  defp arrays(training, data) do
    with {:ok, values} <- Program.values(:training_fit, data_inputs(training, data), data) do
      Enum.reduce_while(values, {:ok, []}, fn value, {:ok, done} ->
        case upload(value) do
          {:ok, ref} -> {:cont, {:ok, done ++ [%{ref: ref}]}}
          failed -> {:halt, failed}
        end
      end)
    end
  end

  defp upload(ref) when is_reference(ref), do: {:ok, ref}
  defp upload(tensor), do: Call.wait(:array_create, [tensor])

  # ------------------------------------------------------------------------------ The loop

  defp run(training, params, batches, callbacks) do
    ref = make_ref()

    case NIF.call(ref, :training_fit, [training.ref, params, true]) do
      :ok -> followed(ref, training, batches, callbacks)
      problem -> Call.result(:training_fit, [training, params], problem)
    end
  end

  # A function of the caller that fails ends the fit, and no message of it stays behind.
  defp followed(ref, training, batches, callbacks) do
    follow(ref, training, batches, callbacks, %{last: nil, halted: false})
  catch
    kind, reason ->
      Call.direct(:training_cancel, [training.ref])
      drain(ref)
      :erlang.raise(kind, reason, __STACKTRACE__)
  end

  defp drain(ref) do
    receive do
      {^ref, {:event, _}} ->
        drain(ref)

      {^ref, {:batch, _, _, job}} ->
        NIF.answer(job, nil)
        drain(ref)

      {^ref, _result} ->
        :ok
    end
  end

  defp follow(ref, training, batches, callbacks, state) do
    receive do
      {^ref, {:event, event}} ->
        event = Options.raise_names(:training_event, event)
        halts = halts?(callbacks, event)
        if halts, do: Call.direct(:training_cancel, [training.ref])
        state = %{last: event, halted: state.halted or halts}
        follow(ref, training, batches, callbacks, state)

      {^ref, {:batch, step, _count, job}} ->
        answer(training, job, batches, step)
        follow(ref, training, batches, callbacks, state)

      {^ref, result} ->
        finished(Call.result(:training_fit, [training], result), state)
    end
  end

  defp halts?(callbacks, event) do
    callbacks |> Enum.map(& &1.(event)) |> Enum.any?(&(&1 == :halt))
  end

  defp finished(:ok, state), do: {:ok, state.last}
  defp finished({:error, %{status: :ecanceled}}, %{halted: true} = state), do: {:ok, state.last}
  defp finished({:error, _} = failed, _state), do: failed

  # A function that fails ends the fit.
  defp answer(training, job, batches, step) do
    NIF.answer(job, batch(training, batches, step))
  catch
    kind, reason ->
      NIF.answer(job, nil)
      :erlang.raise(kind, reason, __STACKTRACE__)
  end

  defp batch(training, batches, step) do
    with data when data != nil <- batches.(step) do
      case arrays(training, data) do
        {:ok, arrays} -> Enum.map(arrays, & &1.ref)
        {:error, error} -> raise error
      end
    end
  end

  # -------------------------------------------------------------------------------- Results

  @doc "Measure loss, accuracy and perplexity on data; nothing is changed."
  @spec evaluate(t, term, keyword) :: {:ok, map} | {:error, Error.t()}
  def evaluate(%__MODULE__{} = training, data, options \\ []) do
    with {:ok, given, nil, kept} <- data_params(training, data) do
      result = Call.make(:training_evaluate, [training, given ++ options])
      _ = kept
      result
    else
      {:ok, _, _, _} ->
        {:error, Error.refused(:training_evaluate, "data", data, "arrays or lines")}

      failed ->
        failed
    end
  end

  @doc "The current value of a parameter, also while a fit runs."
  @spec parameter(t, String.t() | atom) :: {:ok, Array.t()} | {:error, Error.t()}
  def parameter(training, name), do: Call.make(:training_parameter, [training, to_string(name)])

  @doc "The same as `parameter/2`; raises a `CowMLX.Error`."
  @spec parameter!(t, String.t() | atom) :: Array.t()
  def parameter!(training, name), do: Methods.ok!(parameter(training, name))

  @doc "The current values of all parameters of a program, by their names."
  @spec parameters!(t) :: %{String.t() => Array.t()}
  def parameters!(%__MODULE__{parameters: names} = training),
    do: Map.new(names, &{&1, parameter!(training, &1)})

  @doc """
  Write the trained weights of a language model in mlx-lm's format. Options: `fuse: true` writes a
  model that has the adapter in its weights; `dequantize: true` its weights in 16 or 32 bits.
  """
  @spec export(t, Path.t(), keyword) :: :ok | {:error, Error.t()}
  def export(training, folder, options \\ []),
    do: Call.make(:training_export, [training, folder, if(options == [], do: nil, else: options)])

  @doc "Free the training. A call that runs on it ends with `:ecanceled`."
  @spec free(t) :: :ok | {:error, Error.t()}
  def free(%__MODULE__{ref: ref}), do: Call.wait(:free, [ref])
end
