"""From sizes and strides to a kernel launch."""
