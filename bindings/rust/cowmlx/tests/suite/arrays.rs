use std::time::Duration;

use cowmlx::{Array, Bf16, Complex64, Dtype, Element, F16, Status};

use crate::support::{Folder, runtime};

#[test]
fn what_was_copied_in_comes_out() {
    let array = Array::new(runtime(), &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3]).unwrap();
    assert_eq!((array.dtype().unwrap(), array.shape().unwrap()), (Dtype::Float32, vec![2, 3]));
    assert_eq!(array.to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(array.view::<f32>().unwrap()[5], 6.0);
    assert!(array.wait(Some(Duration::ZERO)).unwrap() && array.wait(None).unwrap());
    let mut turned = [0f32; 6];
    array.read_strided(&mut turned, 0, &[2, 3], Some(&[1, 2])).unwrap();
    assert_eq!(turned, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    let back = Array::strided(runtime(), &turned, 5, &[3, 2], Some(&[-2, -1])).unwrap();
    assert_eq!(back.to_vec::<f32>().unwrap(), [6.0, 3.0, 5.0, 2.0, 4.0, 1.0]);
}

#[test]
fn every_element_type_goes_through() {
    fn through<T: Element + PartialEq + std::fmt::Debug>(values: &[T]) {
        let array = Array::new(runtime(), values, &[values.len() as i64]).unwrap();
        assert_eq!(array.dtype().unwrap(), T::DTYPE);
        assert_eq!(Dtype::from_code(T::DTYPE.code()), Some(T::DTYPE));
        assert_eq!(array.to_vec::<T>().unwrap(), values);
        assert_eq!(array.view::<T>().unwrap(), values);
    }
    through(&[true, false]);
    through(&[u8::MAX, 0]);
    through(&[u16::MAX, 1]);
    through(&[u32::MAX, 2]);
    through(&[u64::MAX, 3]);
    through(&[i8::MIN, 4]);
    through(&[i16::MIN, 5]);
    through(&[i32::MIN, 6]);
    through(&[i64::MIN, 7]);
    through(&[F16(0x3c00)]);
    through(&[Bf16(0x3f80)]);
    through(&[f32::MIN, 8.5]);
    through(&[f64::MIN, 1e-300]);
    through(&[Complex64 { re: 1.0, im: -2.0 }]);
    through::<f32>(&[]);
    assert_eq!(Dtype::from_code(0), None);
}

#[test]
fn what_does_not_fit_is_refused() {
    let array = Array::new(runtime(), &[1i32, 2, 3], &[3]).unwrap();
    let refused = |error: cowmlx::Error| assert_eq!(error.status(), Status::InvalidArgument);
    refused(array.to_vec::<u32>().unwrap_err());
    refused(array.view::<f32>().unwrap_err());
    refused(array.read(&mut [0i32; 2]).unwrap_err());
    refused(array.read_strided(&mut [0i32; 3], 0, &[3], Some(&[0])).unwrap_err());
    refused(Array::new(runtime(), &[1i32, 2, 3], &[2]).unwrap_err());
    refused(Array::new(runtime(), &[1i32], &[-1]).unwrap_err());
    refused(Array::strided(runtime(), &[1i32, 2], 1, &[2], None).unwrap_err());
    refused(Array::strided(runtime(), &[1i32, 2], 0, &[2], Some(&[1, 1])).unwrap_err());
    refused(Array::strided(runtime(), &[1i32], usize::MAX, &[1], None).unwrap_err());
    let error = Array::strided(runtime(), &[1i32; 9], 0, &[1; 9], None).unwrap_err();
    assert_eq!((error.reason(), error.status()), ("out_of_range", Status::InvalidArgument));
}

#[test]
fn threads_share_an_array() {
    let array = Array::new(runtime(), &[7u8; 1000], &[10, 100]).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(array.to_vec::<u8>().unwrap(), [7; 1000]));
        }
    });
}

#[test]
fn files_and_dlpack_pass_arrays_on() {
    let folder = Folder::new("arrays");
    let path = folder.0.join("two.safetensors");
    let a = Array::new(runtime(), &[1f32, 2.0], &[2]).unwrap();
    let b = Array::new(runtime(), &[-1i8], &[]).unwrap();
    Array::save(&path, &[("a", &a), ("b", &b)]).unwrap();
    assert!(Array::info(&path).unwrap().contains("\"int8\""));
    let loaded = Array::load(runtime(), &path, &["b", "a"]).unwrap();
    assert_eq!(loaded[0].to_vec::<i8>().unwrap(), [-1]);
    assert_eq!(loaded[1].to_vec::<f32>().unwrap(), [1.0, 2.0]);
    let error = Array::load(runtime(), &path, &["a", "c"]).unwrap_err();
    assert_eq!((error.status(), error.reason()), (Status::InvalidArgument, "missing"));
    let managed = a.to_dlpack().unwrap();
    drop(a);
    // SAFETY: the tensor has just been made, and is used once.
    let again = unsafe { Array::from_dlpack(runtime(), managed) }.unwrap();
    assert_eq!(again.to_vec::<f32>().unwrap(), [1.0, 2.0]);
}
