//! Computations on arrays.

use std::marker::PhantomData;
use std::path::Path;
use std::ptr::null;

use crate::array::{Array, check_count, tensor};
use crate::element::Element;
use crate::error::{Result, check, check_cancel, opened};
use crate::owner::Owner;
use crate::params::{ProgramParams, RunParams};
use crate::runtime::Runtime;
use crate::transfer::c_path;
use crate::{callback, sys, transfer};

/// What a run is given.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    array: sys::cow_mlx_array,
    tensor: Option<sys::cow_mlx_tensor>,
    _of: PhantomData<&'a ()>,
}

impl<'a> Input<'a> {
    /// Elements in row-major order, which are copied: exactly as many as the shape has.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Status::InvalidArgument) if there are more or fewer.
    pub fn new<T: Element>(values: &'a [T], shape: &'a [i64]) -> Result<Self> {
        check_count("program_run", values.len(), shape)?;
        let data = values.as_ptr().cast_mut();
        let tensor = tensor("program_run", data, values.len(), 0, shape, None)?;
        Ok(Self { array: 0, tensor: Some(tensor), _of: PhantomData })
    }
}

impl Input<'_> {
    pub(crate) fn value(&self) -> sys::cow_mlx_value {
        let host = self.tensor.as_ref().map_or(null(), std::ptr::from_ref);
        sys::cow_mlx_value { array: self.array, host }
    }
}

impl<'a> From<&'a Array<'_>> for Input<'a> {
    fn from(array: &'a Array<'_>) -> Self {
        Self { array: array.as_raw(), tensor: None, _of: PhantomData }
    }
}

/// Memory that a run fills, of the result's type and shape.
#[derive(Debug)]
pub struct Output<'a> {
    tensor: sys::cow_mlx_tensor,
    _of: PhantomData<&'a mut ()>,
}

impl<'a> Output<'a> {
    /// Elements in row-major order: exactly as many as the shape has.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Status::InvalidArgument) if there are more or fewer.
    pub fn new<T: Element>(values: &'a mut [T], shape: &'a [i64]) -> Result<Self> {
        check_count("program_run", values.len(), shape)?;
        let tensor = tensor("program_run", values.as_mut_ptr(), values.len(), 0, shape, None)?;
        Ok(Self { tensor, _of: PhantomData })
    }
}

/// A computation on arrays: checked once, run many times, by any number of threads at once.
#[derive(Debug)]
pub struct Program<'r> {
    raw: sys::cow_mlx_program,
    runtime: Owner<'r, Runtime>,
}

impl<'r> Program<'r> {
    /// Make a program of JSON.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_program_create`.
    pub fn new(runtime: impl Into<Owner<'r, Runtime>>, json: &str) -> Result<Self> {
        let mut raw = 0;
        let runtime = runtime.into();
        // SAFETY: the text has that length.
        let status = unsafe {
            sys::cow_mlx_program_create(json.as_ptr().cast(), json.len(), null(), &mut raw)
        };
        opened(status, || Self { raw, runtime })
    }

    /// The program of a file.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_program_load`.
    pub fn load(
        runtime: impl Into<Owner<'r, Runtime>>,
        path: impl AsRef<Path>,
        params: &ProgramParams,
    ) -> Result<Self> {
        let mut raw = 0;
        let runtime = runtime.into();
        let path = c_path("program_load: path", path.as_ref())?;
        let load = |params| {
            // SAFETY: the texts live until the call returns.
            unsafe { sys::cow_mlx_program_load(path.as_ptr(), params, &mut raw) }
        };
        let status = params.lowered("program_load", |_| (), load)?;
        opened(status, || Self { raw, runtime })
    }

    /// Its gradient, the same for many rows, or with inputs bound.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_program_derive`.
    pub fn derive(&self, spec_json: &str) -> Result<Self> {
        let mut raw = 0;
        // SAFETY: the text has that length.
        let status = unsafe {
            sys::cow_mlx_program_derive(
                self.raw,
                spec_json.as_ptr().cast(),
                spec_json.len(),
                &mut raw,
            )
        };
        opened(status, || Self { raw, runtime: self.runtime.clone() })
    }

    /// Run it; returns its results, as many as `outputs`.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_program_run`.
    pub fn run(
        &self,
        inputs: &[Input<'_>],
        outputs: usize,
        params: &RunParams,
    ) -> Result<Vec<Array<'r>>> {
        self.arrays(inputs, outputs, params, false, &[])
    }

    /// Run it, and fill memory with all its results.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_program_run`.
    pub fn run_into(
        &self,
        inputs: &[Input<'_>],
        outputs: &mut [Output<'_>],
        params: &RunParams,
    ) -> Result<()> {
        let mut values: Vec<_> = outputs
            .iter()
            .map(|output| sys::cow_mlx_value { array: 0, host: &raw const output.tensor })
            .collect();
        check(self.call(inputs, &mut values, params, false, &[])?)
    }

    /// Run it later; returns its results at once, and [`Array::wait`] waits for them.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_program_run`.
    pub fn submit(
        &self,
        inputs: &[Input<'_>],
        outputs: usize,
        params: &RunParams,
    ) -> Result<Vec<Array<'r>>> {
        self.arrays(inputs, outputs, params, true, &[])
    }

    /// Run it on arrays that it is given: it computes in their memory where it can.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_program_run`. The arrays are gone in any case.
    pub fn run_donated(
        &self,
        inputs: Vec<Array<'_>>,
        outputs: usize,
        params: &RunParams,
    ) -> Result<Vec<Array<'r>>> {
        let given: Vec<_> = inputs.iter().map(Input::from).collect();
        let count = i32::try_from(given.len()).unwrap_or(i32::MAX);
        let donate: Vec<i32> = (0..count).collect();
        self.arrays(&given, outputs, params, false, &donate)
    }

    fn arrays(
        &self,
        inputs: &[Input<'_>],
        outputs: usize,
        params: &RunParams,
        submit: bool,
        donate: &[i32],
    ) -> Result<Vec<Array<'r>>> {
        let nothing = || sys::cow_mlx_value { array: 0, host: null() };
        let mut values: Vec<_> = std::iter::repeat_with(nothing).take(outputs).collect();
        let status = self.call(inputs, &mut values, params, submit, donate)?;
        opened(status, || {
            values.iter().map(|value| Array::open(value.array, self.runtime.clone())).collect()
        })
    }

    fn call(
        &self,
        inputs: &[Input<'_>],
        outputs: &mut [sys::cow_mlx_value],
        params: &RunParams,
        submit: bool,
        donate: &[i32],
    ) -> Result<sys::cow_mlx_status> {
        let values: Vec<_> = inputs.iter().map(Input::value).collect();
        let own = |raw: &mut sys::cow_mlx_run_params| {
            raw.submit = submit;
            (raw.donate, raw.donate_count) = (donate.as_ptr(), donate.len());
        };
        // SAFETY: all values and their memory live until the call returns, and nothing else
        // borrows the outputs.
        params.lowered("program_run", own, |params| unsafe {
            sys::cow_mlx_program_run(
                self.raw,
                values.as_ptr(),
                values.len(),
                outputs.as_mut_ptr(),
                outputs.len(),
                params,
            )
        })
    }

    /// End its runs, from any thread and at any time. Never blocks.
    ///
    /// # Errors
    /// [`InvalidHandle`](crate::Status::InvalidHandle) if the runtime was stopped.
    pub fn cancel(&self) -> Result<()> {
        // SAFETY: takes any value, from any thread.
        check_cancel(unsafe { sys::cow_mlx_program_cancel(self.raw) }, "program")
    }

    /// All operations, as a JSON array.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_operations_info`.
    pub fn operations(_runtime: &Runtime) -> Result<String> {
        // SAFETY: the buffer has that capacity.
        transfer::text(|text, capacity, length| unsafe {
            sys::cow_mlx_operations_info(text, capacity, length)
        })
    }

    pub(crate) fn runtime(&self) -> Owner<'r, Runtime> {
        self.runtime.clone()
    }

    /// The handle, for calls of [`sys`](crate::sys).
    pub fn as_raw(&self) -> sys::cow_mlx_program {
        self.raw
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle is this one's, and is freed once.
        unsafe { sys::cow_mlx_program_free(self.raw) };
        callback::forget_panic();
    }
}
