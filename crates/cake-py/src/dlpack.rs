//! DLPack, the C interface by which tensor libraries show each other their memory: the parts that are read here.
//!
//! Unsafe code is fenced here and in `tensor`: C structs behind pointers that a library hands out. Sound because
//! (a) the layouts are those of DLPack 1, whose major version is asked before anything else is read; (b) a pointer comes
//! from a capsule of the name that DLPack gives it; (c) what it points to lives as long as the Python object that it was
//! asked from, which the caller holds.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyType};
use pyo3::{ffi, intern};

/// `DLTensor`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct DlTensor {
    pub(crate) data: *mut c_void,
    pub(crate) device_type: i32,
    pub(crate) device_id: i32,
    pub(crate) rank: i32,
    pub(crate) code: u8,
    pub(crate) bits: u8,
    pub(crate) lanes: u16,
    pub(crate) shape: *const i64,
    pub(crate) strides: *const i64,
    pub(crate) byte_offset: u64,
}

#[repr(C)]
struct Version {
    major: u32,
    minor: u32,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
struct Managed {
    version: Version,
    context: *mut c_void,
    deleter: *const c_void,
    flags: u64,
    tensor: DlTensor,
}

const READ_ONLY: u64 = 1;

/// `DLPackExchangeAPI`: what a library tells at the price of a C call.
#[repr(C)]
pub(crate) struct Exchange {
    version: Version,
    previous: *const c_void,
    allocate: *const c_void,
    export: *const c_void,
    import: *const c_void,
    describe: Option<unsafe extern "C" fn(*mut ffi::PyObject, *mut DlTensor) -> c_int>,
    current_stream: unsafe extern "C" fn(i32, i32, *mut *mut c_void) -> c_int,
}

/// `kDLCUDA`.
const CUDA: i32 = 2;

impl Exchange {
    /// The interface of an object's type, if it has one.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Option<&'static Exchange>> {
        /// Types seen so far. Each is kept alive, so that its address stays its own.
        static TYPES: Mutex<Vec<(Py<PyType>, Pointer)>> = Mutex::new(Vec::new());
        /// A table of functions that DLPack wants to live as long as the process.
        #[derive(Clone, Copy)]
        struct Pointer(&'static Exchange);
        // SAFETY: a table of functions that nobody writes.
        unsafe impl Send for Pointer {}

        let address = object.get_type_ptr();
        let known = |types: &Vec<(Py<PyType>, Pointer)>| {
            types.iter().find(|(known, _)| known.as_ptr() == address.cast()).map(|(_, table)| table.0)
        };
        if let Some(table) = known(&TYPES.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(Some(table));
        }
        let kind = object.get_type();
        let Ok(capsule) = kind.getattr(intern!(object.py(), "__dlpack_c_exchange_api__")) else { return Ok(None) };
        let Some(table) = pointer::<Exchange>(&capsule, c"dlpack_exchange_api") else { return Ok(None) };
        // SAFETY: (a), (b).
        let table: &'static Exchange = unsafe {
            if (*table.cast::<Version>()).major != 1 || (*table).describe.is_none() {
                return Ok(None);
            }
            &*table
        };
        TYPES.lock().unwrap_or_else(PoisonError::into_inner).push((kind.unbind(), Pointer(table)));
        Ok(Some(table))
    }

    /// What `object`, whose type has this interface, is a view of; the pointers in it live as long as the object.
    pub(crate) fn describe(&self, object: &Bound<'_, PyAny>) -> PyResult<DlTensor> {
        let mut tensor = DlTensor::empty();
        let describe = self.describe.ok_or_else(|| PyValueError::new_err("tensors without a description"))?;
        // SAFETY: (a); the type of `object` is the one that the table was found at.
        match unsafe { describe(object.as_ptr(), &mut tensor) } {
            0 => Ok(tensor),
            _ => Err(PyErr::fetch(object.py())),
        }
    }

    /// The stream that is current in the library on a GPU.
    pub(crate) fn current_stream(&self, py: Python<'_>, ordinal: u32) -> PyResult<u64> {
        let mut stream = ptr::null_mut();
        // SAFETY: (a).
        match unsafe { (self.current_stream)(CUDA, ordinal as i32, &mut stream) } {
            0 => Ok(stream.expose_provenance() as u64),
            _ => Err(PyErr::fetch(py)),
        }
    }
}

impl DlTensor {
    fn empty() -> DlTensor {
        DlTensor {
            data: ptr::null_mut(),
            device_type: 0,
            device_id: 0,
            rank: 0,
            code: 0,
            bits: 0,
            lanes: 0,
            shape: ptr::null(),
            strides: ptr::null(),
            byte_offset: 0,
        }
    }

    /// Sizes and, where the library gives any, strides; (c) is the caller's.
    pub(crate) fn extents(&self) -> (&[i64], Option<&[i64]>) {
        let rank = self.rank.max(0) as usize;
        let slice = |start: *const i64| {
            // SAFETY: (a): both arrays have an entry for each dimension.
            (!start.is_null()).then(|| unsafe { std::slice::from_raw_parts(start, rank) })
        };
        (slice(self.shape).unwrap_or(&[]), slice(self.strides))
    }
}

/// What an object exports by `__dlpack__`: a tensor, whether it may only be read, and the capsule that keeps it alive.
pub(crate) fn export<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<(DlTensor, bool, Bound<'py, PyAny>)>> {
    let py = object.py();
    let Ok(method) = object.getattr(intern!(py, "__dlpack__")) else { return Ok(None) };
    let arguments = PyDict::new(py);
    arguments.set_item("max_version", (1, 1))?;
    // Libraries from before DLPack 1 know no versions.
    let capsule = method.call((), Some(&arguments)).or_else(|error| {
        if error.is_instance_of::<pyo3::exceptions::PyTypeError>(py) { method.call0() } else { Err(error) }
    })?;
    if let Some(managed) = pointer::<Managed>(&capsule, c"dltensor_versioned") {
        // SAFETY: (a), (b), (c): the capsule is handed out beside the copy.
        unsafe {
            if (*managed.cast::<Version>()).major != 1 {
                return Ok(None);
            }
            return Ok(Some(((*managed).tensor, (*managed).flags & READ_ONLY != 0, capsule)));
        }
    }
    let tensor = pointer::<DlTensor>(&capsule, c"dltensor");
    // SAFETY: as above; an unversioned managed tensor starts with the tensor.
    Ok(tensor.map(|tensor| (unsafe { *tensor }, false, capsule)))
}

/// What a capsule of a name points to.
fn pointer<T>(object: &Bound<'_, PyAny>, name: &CStr) -> Option<*const T> {
    let capsule = object.cast::<PyCapsule>().ok()?;
    // SAFETY: a live object and a terminated name; says whether the other call will succeed.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) == 0 {
            return None;
        }
        Some(ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr()).cast_const().cast())
    }
}
