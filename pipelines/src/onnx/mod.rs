//! The file format of ONNX models: messages of Protocol Buffers with bounds on what a file can allocate.

pub mod model;
pub mod wire;
