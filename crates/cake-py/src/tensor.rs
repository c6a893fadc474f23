//! Tensors of any library as views.
//!
//! Unsafe code is fenced here and in `dlpack`. A view of what a library describes is sound as far as the library tells the
//! truth: the memory lives as long as the Python object, which is an argument of the call. On a GPU it must live until the
//! stream has passed the call, and on a stream that its library knows nothing of its owner sees to that, as for any
//! library (docs/safety.md, C1 to C4).
#![allow(unsafe_code)]

use cake_core::{Device, Dtype, Error, MAX_RANK, Place, Result, Stream, TensorView, TensorViewMut, Workspace};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::dlpack::{self, DlTensor, Exchange};
use crate::error::raise;

/// An argument, described.
pub(crate) struct Tensor<'py> {
    argument: &'static str,
    place: Place,
    address: u64,
    kind: Kind,
    rank: usize,
    shape: [u64; MAX_RANK],
    strides: [i64; MAX_RANK],
    read_only: bool,
    stream: Origin,
    /// Keeps an export alive.
    _owner: Option<Bound<'py, PyAny>>,
}

/// DLPack's code of a type of number, and its bits.
#[derive(Clone, Copy, PartialEq)]
struct Kind(u8, u8);

const UNSIGNED_BYTE: Kind = Kind(1, 8);

/// Where the library of a tensor queues its work.
enum Origin {
    Exchange(&'static Exchange),
    Stream(u64),
}

/// The address of a stream that the caller vouches for.
#[derive(Clone, Copy)]
pub(crate) struct StreamAddress(u64);

impl<'py> Tensor<'py> {
    /// The description of an argument, by the cheapest protocol that its type has.
    pub(crate) fn new(argument: &'static str, object: &Bound<'py, PyAny>) -> PyResult<Self> {
        if let Some(exchange) = Exchange::of(object)? {
            let tensor = exchange.describe(object).map_err(|error| undescribed(argument, object, &error))?;
            return Self::described(argument, &tensor, false, Origin::Exchange(exchange), None);
        }
        let py = object.py();
        if let Ok(interface) = object.getattr(intern!(py, "__cuda_array_interface__")) {
            return Self::interface(argument, object, &interface, true);
        }
        if let Ok(interface) = object.getattr(intern!(py, "__array_interface__")) {
            return Self::interface(argument, object, &interface, false);
        }
        if let Some((tensor, read_only, owner)) = dlpack::export(object)? {
            return Self::described(argument, &tensor, read_only, Origin::Stream(0), Some(owner));
        }
        let name = object.get_type().fully_qualified_name()?;
        Err(PyTypeError::new_err(format!("{argument}: {name}, expected a tensor: something with __dlpack__")))
    }

    pub(crate) fn optional(argument: &'static str, object: Option<&Bound<'py, PyAny>>) -> PyResult<Option<Self>> {
        object.map(|object| Self::new(argument, object)).transpose()
    }

    fn described(
        argument: &'static str,
        tensor: &DlTensor,
        read_only: bool,
        stream: Origin,
        owner: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Self> {
        let place = match tensor.device_type {
            1 | 3 => Place::Host,                           // ordinary and pinned
            2 | 13 => Place::Cuda(tensor.device_id as u32), // ordinary and managed
            other => {
                let text = format!("{argument}: lives on a device of type {other} (DLPack), expected the host or CUDA");
                return Err(PyValueError::new_err(text));
            }
        };
        if tensor.lanes != 1 {
            let text = format!("{argument}: elements of {} lanes (DLPack), expected 1", tensor.lanes);
            return Err(PyValueError::new_err(text));
        }
        let (shape, strides) = tensor.extents();
        let address = (tensor.data.expose_provenance() as u64).wrapping_add(tensor.byte_offset);
        let kind = Kind(tensor.code, tensor.bits);
        Self::placed(argument, place, address, kind, shape, strides, read_only, stream, owner)
    }

    /// From `__array_interface__` or its sister for CUDA.
    fn interface(
        argument: &'static str,
        object: &Bound<'py, PyAny>,
        interface: &Bound<'py, PyAny>,
        cuda: bool,
    ) -> PyResult<Self> {
        let interface = interface.cast::<PyDict>()?;
        let item = |name| -> PyResult<Option<Bound<'py, PyAny>>> {
            Ok(interface.get_item(name)?.filter(|item| !item.is_none()))
        };
        let missing = |name| PyTypeError::new_err(format!("{argument}: its array interface has no {name}"));
        let (address, read_only): (u64, bool) = item("data")?.ok_or_else(|| missing("data"))?.extract()?;
        let shape: Vec<i64> = item("shape")?.ok_or_else(|| missing("shape"))?.extract()?;
        // The interface has no name for BF16: that of the dtype is asked first.
        let name = object.getattr("dtype").and_then(|dtype| Ok(dtype.str()?.to_string()));
        let name = name.or_else(|_| item("typestr")?.ok_or_else(|| missing("typestr"))?.extract::<String>())?;
        let kind = Kind::named(&name)
            .ok_or_else(|| PyValueError::new_err(format!("{argument}: dtype {name}, expected a type of number")))?;
        let bytes = i64::from(kind.1 / 8).max(1);
        let strides: Option<Vec<i64>> = item("strides")?.map(|strides| strides.extract()).transpose()?;
        if let Some(stride) = strides.iter().flatten().find(|stride| **stride % bytes != 0) {
            return Err(PyValueError::new_err(format!(
                "{argument}: stride of {stride} bytes, expected whole elements"
            )));
        }
        let strides = strides.map(|strides| strides.iter().map(|stride| stride / bytes).collect::<Vec<_>>());
        if let Some(strides) = strides.as_ref().filter(|strides| strides.len() != shape.len()) {
            let (found, expected) = (strides.len(), shape.len());
            return Err(PyValueError::new_err(format!("{argument}: {found} strides, expected {expected}")));
        }
        let (mut place, mut stream) = (Place::Host, 0);
        if cuda {
            let device = object.call_method0("__dlpack_device__").and_then(|device| device.extract::<(u32, u32)>());
            place = Place::Cuda(device.map_or(0, |device| device.1));
            stream = item("stream")?.map_or(Ok(0), |stream| stream.extract())?;
        }
        let origin = Origin::Stream(stream);
        Self::placed(argument, place, address, kind, &shape, strides.as_deref(), read_only, origin, None)
    }

    #[allow(clippy::too_many_arguments)] // all that there is to a tensor
    fn placed(
        argument: &'static str,
        place: Place,
        address: u64,
        kind: Kind,
        shape: &[i64],
        strides: Option<&[i64]>,
        read_only: bool,
        stream: Origin,
        owner: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Self> {
        let rank = shape.len();
        if rank > MAX_RANK {
            return Err(raise(Error::Rank { argument, expected: "1 to 7", actual: rank }));
        }
        if let Some(strides) = strides.filter(|strides| strides.len() != rank) {
            return Err(raise(Error::Strides { argument, expected: rank, actual: strides.len() }));
        }
        let mut tensor = Tensor {
            argument,
            place,
            address,
            kind,
            rank,
            shape: [0; MAX_RANK],
            strides: [0; MAX_RANK],
            read_only,
            stream,
            _owner: owner,
        };
        let mut step = 1_i64;
        for dimension in (0..rank).rev() {
            tensor.shape[dimension] = shape[dimension].max(0) as u64;
            tensor.strides[dimension] = strides.map_or(step, |strides| strides[dimension]);
            step = step.saturating_mul(shape[dimension]);
        }
        Ok(tensor)
    }

    pub(crate) fn place(&self) -> Place {
        self.place
    }

    pub(crate) fn shape(&self) -> &[u64] {
        &self.shape[..self.rank]
    }

    /// The size of the last dimension, as a plan has it.
    pub(crate) fn width(&self) -> PyResult<u32> {
        let actual = self.shape().last().copied().unwrap_or(1);
        let expected = "at most 2^32 - 1";
        u32::try_from(actual).map_err(|_| raise(Error::Size { argument: self.argument, expected, actual }))
    }

    /// The type of the elements, if the operators know it.
    pub(crate) fn dtype(&self) -> PyResult<Dtype> {
        match self.kind {
            Kind(4, 16) => Ok(Dtype::Bf16),
            Kind(2, 16) => Ok(Dtype::F16),
            Kind(2, 32) => Ok(Dtype::F32),
            kind => {
                let expected = match self.argument {
                    "weight" | "dw" => "bf16 or f32",
                    "rstd" | "shards" => "f32",
                    _ => "bf16",
                };
                let text = format!("{}: dtype {}, expected {expected}", self.argument, kind.name());
                Err(PyValueError::new_err(text))
            }
        }
    }

    pub(crate) fn view(&self) -> PyResult<TensorView<'_>> {
        // SAFETY: see the head of the file.
        let view = unsafe {
            TensorView::from_raw(
                self.argument,
                self.place,
                self.address,
                u64::MAX,
                self.dtype()?,
                self.shape(),
                &self.strides[..self.rank],
            )
        };
        view.map_err(raise)
    }

    pub(crate) fn view_mut(&self) -> PyResult<TensorViewMut<'_>> {
        if self.read_only {
            return Err(PyValueError::new_err(format!("{}: read-only, expected writable memory", self.argument)));
        }
        // SAFETY: see the head of the file.
        let view = unsafe {
            TensorViewMut::from_raw(
                self.argument,
                self.place,
                self.address,
                u64::MAX,
                self.dtype()?,
                self.shape(),
                &self.strides[..self.rank],
            )
        };
        view.map_err(raise)
    }

    /// Where a call on this tensor is queued: on `given`, else where its library queues its work.
    pub(crate) fn stream(&self, py: Python<'_>, given: Option<u64>) -> PyResult<StreamAddress> {
        Ok(StreamAddress(match (given, self.place, &self.stream) {
            (Some(given), _, _) => given,
            (None, Place::Cuda(ordinal), Origin::Exchange(exchange)) => exchange.current_stream(py, ordinal)?,
            (None, Place::Cuda(_), Origin::Stream(stream)) => *stream,
            (None, Place::Host, _) => 0,
        }))
    }

    /// The bytes of a workspace: address and number.
    pub(crate) fn bytes(&self, place: Place) -> PyResult<(u64, u64)> {
        let argument = self.argument;
        if self.kind != UNSIGNED_BYTE {
            let text = format!("{argument}: dtype {}, expected u8", self.kind.name());
            return Err(PyValueError::new_err(text));
        }
        let (&[bytes], 1) = (self.shape(), self.strides[0]) else {
            let (shape, strides) = (self.shape(), &self.strides[..self.rank]);
            let text =
                format!("{argument}: shape {shape:?} with strides {strides:?}, expected one dimension without gaps");
            return Err(PyValueError::new_err(text));
        };
        match self.place == place {
            true => Ok((self.address, bytes)),
            false => Err(raise(Error::Place { argument, expected: place, actual: self.place })),
        }
    }
}

/// What a library says of a tensor that is no memory on the host or a GPU: a sparse one, say. Its first line, as PyTorch
/// adds where in its own code it was.
fn undescribed(argument: &str, object: &Bound<'_, PyAny>, error: &PyErr) -> PyErr {
    let py = object.py();
    let text = error.value(py).to_string();
    let why = text.lines().next().unwrap_or_default();
    let refused = PyValueError::new_err(format!("{argument}: expected dense memory on the host or CUDA: {why}"));
    refused.set_cause(py, Some(error.clone_ref(py)));
    refused
}

impl Kind {
    /// A kind by the name that NumPy's dtypes have, or in the array interface's short form.
    fn named(name: &str) -> Option<Kind> {
        let short = |letter: &str, size: &str| {
            let code = ["i", "u", "f"].iter().position(|known| *known == letter)?;
            Some(Kind(code as u8, size.parse::<u8>().ok()?.checked_mul(8)?))
        };
        match name {
            "bfloat16" => Some(Kind(4, 16)),
            "bool" => Some(Kind(6, 8)),
            _ if name.starts_with(['<', '|', '=']) => short(name.get(1..2)?, name.get(2..)?),
            _ => {
                let start = name.find(|letter: char| letter.is_ascii_digit())?;
                let code =
                    ["int", "uint", "float", "", "", "complex"].iter().position(|known| *known == &name[..start]);
                Some(Kind(code? as u8, name[start..].parse().ok()?))
            }
        }
    }

    fn name(self) -> String {
        let letter = match self.0 {
            0 => "i",
            1 => "u",
            2 => "f",
            4 => "bf",
            5 => "complex",
            6 => return "bool".into(),
            code => return format!("of code {code} (DLPack) with {} bits", self.1),
        };
        format!("{letter}{}", self.1)
    }
}

impl StreamAddress {
    pub(crate) fn on(self, device: &Device) -> Result<Stream> {
        // SAFETY: the stream comes from the library whose tensors the call is about, or from the caller.
        unsafe { Stream::from_raw(device, std::ptr::with_exposed_provenance_mut(self.0 as usize)) }
    }
}

/// A workspace in the bytes that [`Tensor::bytes`] has accepted.
pub(crate) fn workspace(stream: &Stream, (address, bytes): (u64, u64)) -> Result<Workspace> {
    // SAFETY: see the head of the file; the first bytes are zero as the caller of `cake_py` owes, see its documentation.
    unsafe { Workspace::from_raw(stream, address, bytes) }
}
