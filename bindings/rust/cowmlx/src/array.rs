//! Arrays of numbers.

use std::ffi::{CString, c_void};
use std::mem::ManuallyDrop;
use std::path::Path;
use std::ptr::{null, null_mut};
use std::time::Duration;

use crate::element::{Dtype, Element};
use crate::error::{Error, Result, Status, check, opened};
use crate::owner::Owner;
use crate::runtime::Runtime;
use crate::transfer::{c_path, c_text};
use crate::{callback, sys, transfer};

/// The most dimensions that an array has.
pub const MAX_RANK: usize = sys::COW_MLX_MAX_RANK as usize;

/// Numbers in up to eight dimensions: a value, which nothing changes.
///
/// It may be used by any number of threads at once.
#[derive(Debug)]
pub struct Array<'r> {
    raw: sys::cow_mlx_array,
    runtime: Owner<'r, Runtime>,
}

impl<'r> Array<'r> {
    /// Copy elements in row-major order: exactly as many as the shape has.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_array_create`.
    pub fn new<T: Element>(
        runtime: impl Into<Owner<'r, Runtime>>,
        values: &[T],
        shape: &[i64],
    ) -> Result<Self> {
        check_count("array_create", values.len(), shape)?;
        Self::strided(runtime, values, 0, shape, None)
    }

    /// Copy a strided view of elements: `offset` of them before the one at index 0, and strides in
    /// elements, which may be negative or 0.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_array_create`.
    pub fn strided<T: Element>(
        runtime: impl Into<Owner<'r, Runtime>>,
        values: &[T],
        offset: usize,
        shape: &[i64],
        strides: Option<&[i64]>,
    ) -> Result<Self> {
        let data = values.as_ptr().cast_mut();
        let from = tensor("array_create", data, values.len(), offset, shape, strides)?;
        let mut raw = 0;
        let runtime = runtime.into();
        // SAFETY: the tensor and what it points to live until the call returns, and are only read.
        let status = unsafe { sys::cow_mlx_array_create(&from, &mut raw) };
        opened(status, || Self { raw, runtime })
    }

    /// What it belongs to.
    pub(crate) fn runtime(&self) -> Owner<'r, Runtime> {
        self.runtime.clone()
    }

    /// Take over a handle.
    pub(crate) fn open(raw: sys::cow_mlx_array, runtime: Owner<'r, Runtime>) -> Self {
        Self { raw, runtime }
    }

    /// Give the handle to somebody who frees it.
    pub(crate) fn into_raw(self) -> sys::cow_mlx_array {
        let this = ManuallyDrop::new(self);
        // SAFETY: it is read once, and `this` is not dropped.
        drop(unsafe { std::ptr::read(&raw const this.runtime) });
        this.raw
    }

    /// The type of its elements.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_array_type`.
    pub fn dtype(&self) -> Result<Dtype> {
        Ok(self.kind()?.0)
    }

    /// The sizes of its dimensions, the outermost first.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_array_type`.
    pub fn shape(&self) -> Result<Vec<i64>> {
        Ok(self.kind()?.1)
    }

    fn kind(&self) -> Result<(Dtype, Vec<i64>)> {
        let (mut dtype, mut shape, mut rank) = (0, vec![0; MAX_RANK], 0);
        // SAFETY: a buffer of that capacity, and where the rest goes.
        check(unsafe {
            sys::cow_mlx_array_type(self.raw, &mut dtype, shape.as_mut_ptr(), MAX_RANK, &mut rank)
        })?;
        shape.truncate(rank);
        let dtype = Dtype::from_code(dtype).ok_or_else(|| {
            Error::new(
                Status::Unsupported,
                "unsupported",
                format!("this crate knows no dtype {dtype}"),
            )
        })?;
        Ok((dtype, shape))
    }

    /// The elements in row-major order.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_array_read`; an array of another dtype is refused.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        let mut values = vec![T::default(); count(&self.shape()?)];
        self.read(&mut values)?;
        Ok(values)
    }

    /// Copy the elements in row-major order: `to` has exactly as many.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_array_read`; an array of another dtype is refused.
    pub fn read<T: Element>(&self, to: &mut [T]) -> Result<()> {
        let shape = self.shape()?;
        check_count("array_read", to.len(), &shape)?;
        self.read_strided(to, 0, &shape, None)
    }

    /// Copy the elements to a strided view, of which no two elements may share memory.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_array_read`; an array of another dtype is refused.
    pub fn read_strided<T: Element>(
        &self,
        to: &mut [T],
        offset: usize,
        shape: &[i64],
        strides: Option<&[i64]>,
    ) -> Result<()> {
        let to = tensor("array_read", to.as_mut_ptr(), to.len(), offset, shape, strides)?;
        // SAFETY: the tensor and what it points to live until the call returns; of a dtype's
        // elements every array has valid ones.
        check(unsafe { sys::cow_mlx_array_read(self.raw, &to) })
    }

    /// The elements in row-major order, where they are: nothing is copied.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_array_view`; an array of another dtype is refused.
    pub fn view<T: Element>(&self) -> Result<&[T]> {
        let (dtype, shape) = self.kind()?;
        if dtype != T::DTYPE {
            let message = format!("array_view: the array is of {dtype:?}, not of {:?}", T::DTYPE);
            return Err(Error::new(Status::InvalidArgument, "dtype_mismatch", message));
        }
        let mut data = null();
        // SAFETY: where the result goes.
        check(unsafe { sys::cow_mlx_array_view(self.raw, &mut data, null_mut()) })?;
        // SAFETY: so many elements of the type lie there as long as the handle is open and the
        // runtime runs, which both live as long as `self`; nothing writes to them.
        Ok(unsafe { std::slice::from_raw_parts(data.cast::<T>(), count(&shape)) })
    }

    /// Wait until the elements are computed; false if a run has not brought them in time.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_array_wait`.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<bool> {
        let forever = u128::from(u32::MAX);
        let millis = timeout.map_or(forever, |time| time.as_millis().min(forever - 1));
        // SAFETY: no memory is involved.
        let status =
            unsafe { sys::cow_mlx_array_wait(self.raw, u32::try_from(millis).unwrap_or(u32::MAX)) };
        if status == sys::COW_MLX_ETIMEDOUT {
            return Ok(false);
        }
        check(status)?;
        Ok(true)
    }

    /// Apply one operation; `None` stands for an input that is left out. Values are computed when
    /// they are needed.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_array_apply`.
    pub fn apply(
        runtime: impl Into<Owner<'r, Runtime>>,
        operation: &str,
        inputs: &[Option<&Array<'_>>],
        attributes_json: Option<&str>,
    ) -> Result<Vec<Self>> {
        let operation = c_text("array_apply: operation", operation)?;
        let attributes =
            attributes_json.map(|text| c_text("array_apply: attributes_json", text)).transpose()?;
        let attributes = attributes.as_ref().map_or(null(), |text| text.as_ptr());
        let given: Vec<_> = inputs.iter().map(|input| input.map_or(0, |array| array.raw)).collect();
        let runtime = runtime.into();
        // SAFETY: texts, handles and a buffer of those sizes live until the call returns.
        let handles = transfer::vector(4, |out, capacity, length| unsafe {
            sys::cow_mlx_array_apply(
                operation.as_ptr(),
                given.as_ptr(),
                given.len(),
                attributes,
                out,
                capacity,
                length,
            )
        })?;
        Ok(handles.into_iter().map(|raw| Self::open(raw, runtime.clone())).collect())
    }

    /// Load arrays of a safetensors file, in the order of the names: all or none.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_arrays_load`.
    pub fn load(
        runtime: impl Into<Owner<'r, Runtime>>,
        path: impl AsRef<Path>,
        names: &[&str],
    ) -> Result<Vec<Self>> {
        let path = c_path("arrays_load: path", path.as_ref())?;
        let names = c_texts("arrays_load: names", names)?;
        let pointers: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
        let mut handles = vec![0; names.len()];
        let runtime = runtime.into();
        // SAFETY: texts and buffers of that many live until the call returns.
        let status = unsafe {
            sys::cow_mlx_arrays_load(
                path.as_ptr(),
                pointers.as_ptr(),
                pointers.len(),
                handles.as_mut_ptr(),
            )
        };
        opened(status, || {
            let open = |&raw| Self { raw, runtime: runtime.clone() };
            handles.iter().map(open).collect()
        })
    }

    /// Save arrays under names as a safetensors file: whole or not at all.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_arrays_save`.
    pub fn save(path: impl AsRef<Path>, arrays: &[(&str, &Array<'_>)]) -> Result<()> {
        let path = c_path("arrays_save: path", path.as_ref())?;
        let names: Vec<_> = arrays.iter().map(|(name, _)| *name).collect();
        let names = c_texts("arrays_save: names", &names)?;
        let pointers: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
        let handles: Vec<_> = arrays.iter().map(|(_, array)| array.raw).collect();
        // SAFETY: texts and handles, so many of each, live until the call returns.
        check(unsafe {
            sys::cow_mlx_arrays_save(
                path.as_ptr(),
                pointers.as_ptr(),
                handles.as_ptr(),
                handles.len(),
            )
        })
    }

    /// What a safetensors file holds, as a JSON object.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_arrays_info`.
    pub fn info(path: impl AsRef<Path>) -> Result<String> {
        let path = c_path("arrays_info: path", path.as_ref())?;
        transfer::text(|text, capacity, length| {
            // SAFETY: a buffer of that capacity, and where its size goes.
            unsafe { sys::cow_mlx_arrays_info(path.as_ptr(), text, capacity, length) }
        })
    }

    /// Copy a DLPack tensor, and call its deleter.
    ///
    /// # Safety
    /// It is one, of memory that may be read, and the caller's to give away. After an error it
    /// still is the caller's.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_array_from_dlpack`.
    pub unsafe fn from_dlpack(
        runtime: impl Into<Owner<'r, Runtime>>,
        managed: *mut sys::DLManagedTensorVersioned,
    ) -> Result<Self> {
        let mut raw = 0;
        let runtime = runtime.into();
        // SAFETY: the caller's.
        let status = unsafe { sys::cow_mlx_array_from_dlpack(managed, &mut raw) };
        opened(status, || Self { raw, runtime })
    }

    /// A DLPack tensor of the elements, read-only, which the receiver frees by its deleter. It
    /// outlives the array and the runtime.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_array_to_dlpack`.
    pub fn to_dlpack(&self) -> Result<*mut sys::DLManagedTensorVersioned> {
        let mut managed = null_mut();
        // SAFETY: where the result goes.
        check(unsafe { sys::cow_mlx_array_to_dlpack(self.raw, &mut managed) })?;
        Ok(managed)
    }

    /// The handle, for calls of [`sys`](crate::sys).
    pub fn as_raw(&self) -> sys::cow_mlx_array {
        self.raw
    }
}

impl Drop for Array<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle is this one's, and is freed once.
        unsafe { sys::cow_mlx_array_free(self.raw) };
        callback::forget_panic();
    }
}

fn c_texts(what: &str, texts: &[&str]) -> Result<Vec<CString>> {
    texts.iter().map(|text| c_text(what, text)).collect()
}

/// The number of elements of an array.
fn count(shape: &[i64]) -> usize {
    shape.iter().map(|&side| usize::try_from(side).unwrap_or(0)).product()
}

pub(crate) fn check_count(operation: &str, given: usize, shape: &[i64]) -> Result<()> {
    let wanted = shape.iter().try_fold(1i64, |all, &side| all.checked_mul(side));
    if wanted.and_then(|all| usize::try_from(all).ok()) == Some(given) {
        return Ok(());
    }
    let message = format!("{operation}: {given} values are no array of the shape {shape:?}");
    Err(Error::new(Status::InvalidArgument, "shape_mismatch", message))
}

/// Describe memory; the slices must outlive what is returned.
pub(crate) fn tensor<T: Element>(
    operation: &str,
    data: *mut T,
    length: usize,
    offset: usize,
    shape: &[i64],
    strides: Option<&[i64]>,
) -> Result<sys::cow_mlx_tensor> {
    if strides.is_some_and(|strides| strides.len() != shape.len()) {
        let message = format!("{operation}: there are as many strides as dimensions, or none");
        return Err(Error::new(Status::InvalidArgument, "shape_mismatch", message));
    }
    let invalid = || {
        Error::new(
            Status::InvalidArgument,
            "out_of_range",
            format!("{operation}: offset or rank is too large"),
        )
    };
    Ok(sys::cow_mlx_tensor {
        struct_size: size_of::<sys::cow_mlx_tensor>(),
        data: data.cast::<c_void>(),
        bytes: length * size_of::<T>(),
        offset: offset.checked_mul(size_of::<T>()).ok_or_else(invalid)?,
        dtype: T::DTYPE.code(),
        rank: i32::try_from(shape.len()).map_err(|_| invalid())?,
        shape: shape.as_ptr(),
        strides: strides.map_or(null(), <[i64]>::as_ptr),
    })
}
