use cowmlx::{Media, Status};

use crate::support::{parse, runtime};

#[test]
fn images_have_a_size_and_a_hash() {
    let runtime = runtime();
    let image = Media::from_pixels(&runtime, &[1, 2, 3, 4, 5, 6], 2, 1, 3).unwrap();
    let about = parse(image.info());
    assert_eq!((&about["width"], &about["height"]), (&2.into(), &1.into()));
    assert_eq!(about["hash"].as_str().unwrap().len(), 32);
    assert!(image.as_raw() > 0);
}

#[test]
fn too_few_pixels_and_files_that_are_none_are_refused() {
    let runtime = runtime();
    for (width, channels) in [(3, 3), (i32::MAX, i32::MAX), (0, 3), (-1, 3)] {
        let error = Media::from_pixels(&runtime, &[0; 6], width, 1, channels).unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument);
    }
    for bytes in [&b"no image"[..], &[]] {
        assert!(Media::from_file(&runtime, bytes).is_err());
    }
}
